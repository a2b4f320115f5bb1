// The frames that Grafana's data source for Prometheus makes of an answer of Prometheus.

import { data } from "./grafana.mjs";

const { FieldType, toDataFrame } = data;

/** A frame for each series, or one for each query of a table. `answers` is by the query's letter. */
export function framesOf(panel, answers) {
  const asked = panel.targets.map((target) => ({ target, series: answers[target.refId] }));
  const tables = asked.filter(({ target, series }) => target.format === "table" && series.length > 0);
  const others = asked.filter(({ target }) => target.format !== "table");
  return [
    ...tables.map(({ target, series }) => tableFrame(target, series, tables.length)),
    ...others.flatMap(({ target, series }) => series.map((one) => seriesFrame(target, one))),
  ];
}

// Every label is a column, the metric's name among them; the value carries the query's letter where there are several.
function tableFrame(target, series, tables) {
  const labels = [...new Set(series.flatMap((one) => Object.keys(one.metric).sort()))];
  const columns = labels.map((name) => ({
    ...{ name, type: FieldType.string, config: { filterable: true } },
    values: series.map((one) => one.metric[name] ?? ""),
  }));
  const time = { name: "Time", type: FieldType.time, config: {}, values: series.map((one) => one.value[0] * 1000) };
  const name = tables > 1 ? `Value #${target.refId}` : "Value";
  const value = { name, type: FieldType.number, config: {}, values: series.map((one) => number(one.value[1])) };
  return toDataFrame({ refId: target.refId, fields: [time, ...columns, value] });
}

function seriesFrame(target, { metric, value, values = [value] }) {
  const name = target.legendFormat.replace(/{{\s*(\w+)\s*}}/g, (_, label) => metric[label] ?? "");
  const time = { name: "Time", type: FieldType.time, config: {}, values: values.map(([at]) => at * 1000) };
  const numbers = values.map(([, text]) => number(text));
  const config = { displayNameFromDS: name };
  const field = { name: "Value", type: FieldType.number, labels: metric, config, values: numbers };
  return toDataFrame({ refId: target.refId, name, fields: [time, field] });
}

function number(text) {
  return { "+Inf": Infinity, "-Inf": -Infinity, NaN: NaN }[text] ?? Number(text);
}
