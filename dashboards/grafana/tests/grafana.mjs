// Grafana's own library, outside a browser and outside Grafana: what the application registers at its start is registered here.

import { createRequire } from "node:module";

// The library asks the browser for settings and its language.
globalThis.window = globalThis;
globalThis.location = new URL("http://grafana.example/");
globalThis.navigator ??= { language: "en-US", languages: ["en-US"] };

const require = createRequire(import.meta.url);

/** The library `@grafana/data`. */
export const data = require("@grafana/data");

/** The dark theme: names of colours become those on the screen. */
export const theme = data.createTheme();

// One stands there twice, under an older name too.
const transformers = new Set(Object.values(data.standardTransformers));
data.standardTransformersRegistry.setInit(() =>
  [...transformers].map((transformation) => ({ id: transformation.id, name: transformation.name, transformation })),
);

// The properties of a field that these dashboards set, as Grafana processes each. One that is not here is refused.
const STANDARD = {
  unit: data.unitOverrideProcessor,
  decimals: data.numberOverrideProcessor,
  min: data.numberOverrideProcessor,
  max: data.numberOverrideProcessor,
  noValue: data.stringOverrideProcessor,
  color: data.identityOverrideProcessor,
  thresholds: data.thresholdsOverrideProcessor,
  mappings: data.valueMappingsOverrideProcessor,
  links: data.dataLinksOverrideProcessor,
};
const CUSTOM = {
  table: ["cellOptions", "filterable"],
  timeseries: ["drawStyle", "pointSize"],
  stat: [],
  heatmap: [],
  "state-timeline": [],
};

/** The properties of a field that a kind of panel knows. */
export function fieldProperties(type) {
  const standard = Object.entries(STANDARD).map(([id, process]) => ({ id, path: id, name: id, process }));
  const custom = CUSTOM[type].map((path) => ({
    ...{ id: `custom.${path}`, path, name: path, isCustom: true },
    process: data.identityOverrideProcessor,
  }));
  const properties = [...standard, ...custom].map((property) => ({ ...property, shouldApply: () => true }));
  return new data.FieldConfigOptionsRegistry(() => properties);
}
