// Renders panels as Grafana does up to the canvas: answers of Prometheus become frames, go through the panel's transformations
// and field options, and end as the texts, colours and links that are shown.
//
//   node render.mjs < panels.json > shown.json
//
// One panel of the input: {where, panel, answers: {A: series, …}, variables: {run: value, …}, range: {from, to}}.

import { text } from "node:stream/consumers";

import { framesOf } from "./frames.mjs";
import { data, fieldProperties, theme } from "./grafana.mjs";
import { heatmap } from "./heatmap.mjs";
import { interpolator } from "./interpolate.mjs";

const { FieldType, formattedValueToString, getFieldDisplayName, getFieldSeriesColor, reduceField } = data;

async function shown({ where, panel, answers, variables, range }) {
  const interpolate = interpolator(variables, range);
  const links = (panel.links ?? []).map((link) => interpolate(link.url));
  refuseUnknown(panel);
  const frames = await transformed(panel, framesOf(panel, answers), interpolate);
  return { where, type: panel.type, links, ...drawn(panel, frames) };
}

function refuseUnknown({ type, fieldConfig }) {
  const known = fieldProperties(type);
  for (const { id } of fieldConfig.overrides.flatMap((override) => override.properties)) {
    if (!known.getIfExists(id)) {
      throw new Error(`a field of a ${type} has no property ${id}`);
    }
  }
}

async function transformed(panel, frames, interpolate) {
  const context = { interpolate: (word) => word };
  const result = await new Promise((resolve, reject) =>
    data.transformDataFrame(panel.transformations ?? [], frames, context).subscribe({ next: resolve, error: reject }),
  );
  return data.applyFieldOverrides({
    ...{ data: result, fieldConfig: panel.fieldConfig, theme, timeZone: "utc", replaceVariables: interpolate },
    fieldConfigRegistry: fieldProperties(panel.type),
  });
}

function drawn(panel, frames) {
  switch (panel.type) {
    case "table":
      return table(frames);
    case "heatmap":
      return heatmap(panel, frames);
    default:
      return { series: frames.flatMap((frame) => valuesOf(frame).map((field) => series(field, frame, frames))) };
  }
}

function valuesOf(frame) {
  return frame.fields.filter((field) => field.type === FieldType.number);
}

function table(frames) {
  // A table shows one frame: of several the reader chooses.
  const [frame] = frames;
  if (frames.length !== 1) {
    return { frames: frames.length, columns: [], labels: [], rows: [] };
  }
  const nameOf = (field) => getFieldDisplayName(field, frame, frames);
  const columns = frame.fields.map(nameOf);
  // What a row is of; the other columns are what is known of it.
  const labels = frame.fields.filter((field) => field.type === FieldType.string).map(nameOf);
  const rows = Array.from({ length: frame.length }, (_, row) => frame.fields.map((field) => cell(field, row)));
  return { frames: 1, columns, labels, rows };
}

function cell(field, row) {
  const value = field.values[row];
  if (value === undefined || value === null) {
    return { text: "", color: null, links: [] };
  }
  const display = field.display(value);
  const isColored = field.config.custom?.cellOptions?.type === "color-background";
  const links = field.getLinks({ valueRowIndex: row }).map(({ href }) => href);
  return { text: formattedValueToString(display), color: isColored ? display.color : null, links };
}

function series(field, frame, frames) {
  const last = reduceField({ field, reducers: ["lastNotNull"] }).lastNotNull;
  const values = [...field.values];
  return {
    name: getFieldDisplayName(field, frame, frames),
    // Of a curve, and of what is coloured by its last value.
    color: getFieldSeriesColor(field, theme).color,
    lastColor: field.display(last).color,
    points: values.filter((value) => Number.isFinite(value)).length,
    texts: [...new Set(values.map((value) => formattedValueToString(field.display(value))))],
  };
}

const asked = JSON.parse(await text(process.stdin));
const answered = [];
for (const one of asked) {
  try {
    answered.push(await shown(one));
  } catch (error) {
    throw new Error(`${one.where}: ${error.message}`, { cause: error });
  }
}
process.stdout.write(JSON.stringify({ colors: named(), shown: answered }));

/** The colours of the theme that tests ask for by name. */
function named() {
  return Object.fromEntries(
    ["red", "orange", "green", "yellow", "blue", "text"].map((name) => [
      name,
      theme.visualization.getColorByName(name),
    ]),
  );
}
