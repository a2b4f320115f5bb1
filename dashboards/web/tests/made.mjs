// A run as the page is given it, made for a test: as many layers of ten tensors as wanted, with faults and alerts.

import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mkdtempSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const VERSION = Number(
  readFileSync(new URL("../src/data/contract.ts", import.meta.url), "utf8").match(/VERSION = (\d+)/)[1],
);
const PARTS = ["attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down", "norm1", "norm2", "bias"];
/** Steps of a column of the heat maps. */
const WIDTH = 8;

/** The same numbers every time. */
function scatter(seed) {
  let state = seed;
  const even = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(1 - even())) * Math.cos(2 * Math.PI * even());
}

export function tensorsOf(layers) {
  const inside = Array.from({ length: layers }, (_, layer) =>
    PARTS.map((part) => `model.layers.${layer}.${part}.weight`),
  );
  return ["embed.weight", ...inside.flat(), "lm_head.weight"];
}

const layerOf = (name) => name.match(/^model\.layers\.\d+/)?.[0] ?? name.split(".")[0];

function heatMap(kind, statistic, names, steps, fault) {
  const noise = scatter(kind.length);
  const columns = Math.ceil(steps / WIDTH);
  const layers = [...new Set(names.map(layerOf))];
  const values = new Float32Array(names.length * columns);
  names.forEach((name, row) => {
    const level = 0.05 * Math.exp(noise());
    for (let column = 0; column < columns; column += 1) {
      const isFault = name === fault.tensor && column * WIDTH >= fault.step;
      values[row * columns + column] = level * Math.exp(0.15 * noise()) * (isFault ? 17.6 : 1);
    }
    if (name === fault.broken) values[row * columns + 20] = Number.NaN;
  });
  const first = Array.from({ length: columns }, (_, column) => column * WIDTH);
  return {
    version: VERSION,
    kind,
    statistic,
    columns: {
      generation: 3,
      width: WIDTH,
      bins: columns,
      from: 0,
      first,
      last: first.map((step) => Math.min(steps, step + WIDTH) - 1),
      time: first,
    },
    names,
    layers,
    layer_of: names.map((name) => layers.indexOf(layerOf(name))),
    rows: names.length,
    values: Buffer.from(values.buffer).toString("base64"),
  };
}

/** An alert; `over`: the step in which it ends, of one that is over. */
export function alert(rule, severity, step, series, extra = {}) {
  return {
    rule,
    severity,
    phase: "begins",
    findings: 1,
    step,
    rank: 0,
    time: `2026-11-20T16:00:00.${String(step).padStart(6, "0")}Z`,
    series: { scope: "global", name: "", statistic: null, micro_step: 0, vpp_stage: 0, ...series },
    value: 0.853,
    expected: { typical: 0.0485 },
    message: `${rule}: ${series.signal} 0.853 at step ${step} on rank 0 (usually 0.0485)`,
    ...extra,
  };
}

export const ended = (begun, step) => ({ ...begun, phase: "ends", step, message: `${begun.rule} is over` });

/** The newest value of a tensor that lies some deviations from its usual one. */
export function state(name, deviations, change) {
  const usual = 0.0485;
  return { kind: "grad_reduced", name, layer: layerOf(name), step: 1499, value: usual * change, usual, deviations };
}

export function documentOf({ layers, steps, alerts, worst = [], fault = {}, far = 6.4 }) {
  const noise = scatter(11);
  const all = Array.from({ length: steps }, (_, step) => step);
  const names = tensorsOf(layers);
  const curve = (name, value) => ({ name, last: all.map(value) });
  const maps = [
    heatMap("grad_reduced", "norm", names, steps, fault),
    heatMap("update_ratio", "update_ratio", names, steps, {}),
  ];
  const axis = { generation: 0, width: 1, bins: steps };
  const { columns } = maps[0];
  return {
    version: VERSION,
    overview: {
      version: VERSION,
      cursor: { generation: 0, bins: steps - 1, alerts: alerts.length },
      steps: { ...axis, from: 0, first: all, last: all, time: all },
      curves: [
        curve("loss", (step) => 2 + 5 * Math.exp(-step / 300) + 0.02 * noise()),
        curve("grad_norm", () => Math.exp(0.1 * noise())),
        curve("learning_rate", (step) => 3e-4 * (1 - step / (2 * steps))),
        curve("step_seconds", () => 0.41 + 0.01 * noise()),
        curve("collect_seconds", () => 0.012 + 0.001 * noise()),
        curve("scalar/straggler_rank/world", (step) => (step % 10 === 9 ? (step / 10) & 1 : null)),
        curve("scalar/accuracy", (step) => 0.9 - 0.8 * Math.exp(-step / 400)),
      ],
      curves_left_out: 0,
      tables: {
        kinds: maps.map(({ kind, statistic, rows }) => ({ name: kind, statistics: [statistic], rows })),
        rows_left_out: 0,
        columns: { generation: columns.generation, width: columns.width, bins: columns.bins },
        worst,
        update_ratios: [{ ...state(names[1], 0, 1), kind: "update_ratio" }],
        far_deviations: far,
        labels: ["scalar/straggler_rank/world"],
      },
      alerts,
      alerts_seen: alerts.length,
      alerts_begun: alerts.filter(({ phase }) => phase === "begins").length,
    },
    status: {
      run: "made",
      rank: 0,
      world_size: 8,
      host: "",
      version: "",
      step: steps - 1,
      seconds_since_last_step: null,
      ledger: {
        observed: 4_004_000,
        not_sampled: 0,
        accepted: 4_004_000,
        dropped: 0,
        queue: { length: 0, capacity: 8 },
        sinks: [],
        alerts_lost: 0,
        journal_bytes: null,
        journal_errors: null,
      },
      collectives: [],
      cost: {
        steps,
        step_seconds: 0.41 * steps,
        measure_seconds: 0.012 * steps,
        launch_seconds: 0,
        offer_seconds: 0.001 * steps,
        budget: null,
        sampling: 1,
        bytes_read: 1e9,
      },
    },
    heat_maps: maps,
  };
}

/** Puts documents into the page of `dist`: the folder, and the address of each by its name. */
export function pagesOf(dist, documents) {
  const folder = mkdtempSync(join(tmpdir(), "trainmon-"));
  const template = readFileSync(join(dist, "run.html"), "utf8");
  const urls = {};
  for (const [name, data] of Object.entries(documents)) {
    const file = join(folder, `${name}.html`);
    const text = JSON.stringify(data).replaceAll("<", "\\u003c");
    writeFileSync(
      file,
      template.replace('id="run-data">null<', () => `id="run-data">${text}<`),
    );
    urls[name] = pathToFileURL(file).href;
  }
  return { folder, urls };
}
