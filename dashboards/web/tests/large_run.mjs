// The runs that large.mjs looks at: 2,002 tensors with a fault and alerts, and small ones whose alerts are over or of one incident.

import { alert, documentOf, ended, state } from "./made.mjs";

const STEPS = 1500;
export const TENSOR = "model.layers.117.mlp.down.weight";
const BROKEN = "model.layers.160.attn.q.weight";
const fault = { tensor: TENSOR, step: 1200, broken: BROKEN };

const move = {
  step: 1200,
  signal: "grad_reduced",
  layer: "model.layers.117",
  tensor: TENSOR,
  value: 0.853,
  expected: 0.0485,
};
const ofTensor = {
  scope: "tensor",
  name: TENSOR,
  layer: "model.layers.117",
  signal: "grad_reduced",
  statistic: "norm",
};
const ofLayer = { scope: "layer", name: "model.layers.117", layer: "model.layers.117", signal: "update_ratio" };
const past = Array.from({ length: 9 }, (_, index) => {
  const name = `model.layers.${40 + index}.attn.q.weight`;
  return alert("AnomalyTurbulence", "warning", 300 + index, { ...ofTensor, name, layer: `model.layers.${40 + index}` });
});
const ongoing = [
  alert("Spike", "critical", 1200, ofTensor, { moved_first: move }),
  alert("UpdateRatio", "warning", 1203, ofLayer),
  alert("Drift", "info", 1240, { signal: "loss" }),
];
/** Fifteen alerts of one cause, of which the first was sent out. */
const incident = past
  .concat(past.slice(0, 6).map((one) => ({ ...one, rule: "Spike" })))
  .map((one, index) => ({ ...one, incident: { step: 300, headline: index === 0 } }));
const pastEnds = past.map((begun, index) => ended(begun, 320 + index));
const noise = Array.from({ length: 40 }, (_, index) =>
  state(`model.layers.${5 * index}.norm1.weight`, 3.6 - index / 60, 1.7),
);
export const documents = {
  large: documentOf({ layers: 200, steps: STEPS, fault, worst: noise, alerts: [...past, ...pastEnds, ...ongoing] }),
  far: documentOf({
    layers: 200,
    steps: STEPS,
    fault,
    worst: [state(TENSOR, 22.9, 17.6), ...noise.slice(1)],
    alerts: [ongoing[0]],
  }),
  over: documentOf({ layers: 1, steps: 400, alerts: [...past.slice(0, 3), ...pastEnds.slice(0, 3)] }),
  incident: documentOf({
    layers: 1,
    steps: 400,
    alerts: [...incident, alert("Drift", "info", 390, { signal: "loss" })],
  }),
  calm: documentOf({ layers: 1, steps: 100, alerts: [] }),
};
