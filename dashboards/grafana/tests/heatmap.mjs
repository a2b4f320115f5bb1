// A heat map of rows (`calculate` off). Its panel is no package of Grafana's: this follows its documentation, "Hide cells with
// values <=" and ">=", and its schema, HeatmapPanelCfg, for the limit where a dashboard names none.

import { data } from "./grafana.mjs";

const { cacheFieldDisplayNames, FieldType, getFieldDisplayName, outerJoinDataFrames } = data;
const DEFAULT_LIMIT = 1e-9;

/** Rows from the lowest on, each with how many of its values are drawn, are hidden by the limits, are no finite numbers. */
export function heatmap(panel, frames) {
  if (frames.length === 0) {
    return { rows: [] };
  }
  const { calculate = false, filterValues = {} } = panel.options;
  if (calculate) {
    throw new Error("a heat map of counts, not of rows");
  }
  const { le = DEFAULT_LIMIT, ge = Infinity } = filterValues;
  cacheFieldDisplayNames(frames);
  const joined = outerJoinDataFrames({ frames, keepDisplayNames: true });
  const fields = joined.fields.filter((field) => field.type === FieldType.number);
  const rows = fields.map((field) => {
    const row = { name: getFieldDisplayName(field, joined), drawn: 0, hidden: 0, notNumbers: 0 };
    for (const value of field.values) {
      if (value !== null && value !== undefined) {
        row[!Number.isFinite(value) ? "notNumbers" : value > le && value < ge ? "drawn" : "hidden"] += 1;
      }
    }
    return row;
  });
  return { rows };
}
