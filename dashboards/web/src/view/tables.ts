// The tables: the worst tensors now, collective operations, what the monitor costs, where every record went.

import { type Collective, type Cost, type Ledger, type Tables, type TensorState, toNumber } from "../data/contract";
import { el } from "../shared/dom";
import { matcher } from "../shared/filter";
import * as format from "../shared/format";
import { type Cell, table } from "../shared/table";

/** In standard deviations: nearer than that is every other tensor. */
const NEWS = 3;
/** That far is no chance. */
const FAR = 6;
/** So many are shown where none is farther than the others. */
const FEW = 5;

function name(state: TensorState): HTMLElement {
  return el("span", { class: "tensor", text: state.name, title: state.name });
}

/** Words of a kind: `grad_reduced` as `grad reduced`. */
function words(kind: string): string {
  return kind.replaceAll("_", " ");
}

export function worst(tables: Tables, filter: string, most: number): HTMLElement {
  const matches = matcher(filter);
  const matching = tables.worst.filter((state) => matches(`${state.name} ${state.kind}`));
  const standing = matching.filter((state) => isFar(state, NEWS)).length;
  const states = matching.slice(0, standing > 0 ? Math.min(standing, most) : FEW);
  if (states.length === 0) {
    return el("p", {
      class: "note",
      text: filter ? "None of the worst tensors matches the filter." : "Nothing stands out.",
    });
  }
  const row = (state: TensorState): Cell[] => {
    const value = toNumber(state.value);
    const usual = state.usual === null ? null : toNumber(state.usual);
    const deviations = toNumber(state.deviations);
    const isBroken = !Number.isFinite(value);
    const sign = deviations >= 0 ? "+" : "−";
    const distance = Math.abs(deviations) >= 100 ? "> 99" : Math.abs(deviations).toFixed(1);
    return [
      name(state),
      words(state.kind),
      el("span", { class: isBroken ? "broken" : "", text: format.number(value) }),
      format.number(usual),
      format.factor(value, usual),
      el("span", { class: isFar(state, FAR) ? "far" : "", text: isBroken ? "not finite" : `${sign}${distance} σ` }),
      format.integer(state.step),
    ];
  };
  const rows = table(
    [
      ["tensor", "text"],
      ["kind", "text"],
      ["now", "number"],
      ["usually", "number"],
      ["change", "number"],
      ["distance", "number"],
      ["step", "number"],
    ],
    states.map(row),
  );
  const calm = el("p", { class: "note", text: `None of them is farther than ${NEWS} σ.` });
  return el("div", {}, rows, standing > 0 ? null : calm);
}

function isFar({ value, deviations }: TensorState, least: number): boolean {
  return !Number.isFinite(toNumber(value)) || Math.abs(toNumber(deviations)) >= least;
}

export function ratios(tables: Tables): HTMLElement | null {
  if (tables.update_ratios.length === 0) return null;
  const row = (state: TensorState): Cell[] => [
    name(state),
    format.number(toNumber(state.value)),
    format.number(state.usual === null ? null : toNumber(state.usual)),
  ];
  return table(
    [
      ["tensor", "text"],
      ["ratio", "number"],
      ["usually", "number"],
    ],
    tables.update_ratios.map(row),
  );
}

export function collectives(all: Collective[]): HTMLElement | null {
  if (all.length === 0) return null;
  const row = ({ op, group, started, failed, bytes, seconds, median_seconds, p99_seconds }: Collective): Cell[] => [
    el("span", { text: `${op} · ${group}`, title: `${op} in ${group}` }),
    format.integer(started),
    el("span", { class: failed > 0 ? "far" : "", text: format.integer(failed) }),
    format.bytes(bytes),
    format.seconds(median_seconds),
    format.seconds(p99_seconds),
    format.seconds(seconds),
  ];
  return table(
    [
      ["operation", "text"],
      ["count", "number"],
      ["failed", "number"],
      ["data", "number"],
      ["median", "number"],
      ["p99", "number"],
      ["in all", "number"],
    ],
    all.toSorted((a, b) => b.seconds - a.seconds).map(row),
  );
}

/** The share of the step time that the monitor takes from the training; `null` before a step has a time. */
export function costShare(cost: Cost | null): number | null {
  if (!cost || cost.step_seconds <= 0) return null;
  return (cost.measure_seconds + cost.launch_seconds + cost.offer_seconds) / cost.step_seconds;
}

export function cost(cost: Cost | null): HTMLElement | null {
  const share = costShare(cost);
  if (!cost || share === null) return null;
  const per = (seconds: number) => format.seconds(seconds / Math.max(1, cost.steps));
  const rows: [string, string][] = [
    [
      "of the step time",
      `${format.percent(share)}${cost.budget === null ? "" : ` (budget ${format.percent(cost.budget)})`}`,
    ],
    ["measuring, per step", per(cost.measure_seconds)],
  ];
  if (cost.launch_seconds > 0) rows.push(["launching, per step", per(cost.launch_seconds)]);
  rows.push(["handing over, per step", per(cost.offer_seconds)]);
  if (cost.sampling !== null) rows.push(["layers measured", format.percent(cost.sampling)]);
  rows.push(["memory read", format.bytes(cost.bytes_read)]);
  return facts(rows);
}

export function ledger(ledger: Ledger | null): HTMLElement | null {
  if (!ledger) return null;
  const { queue } = ledger;
  const rows: Cell[][] = [
    ["worker", format.integer(ledger.accepted), "", lost(ledger.dropped), `${queue.length} / ${queue.capacity}`],
    ...ledger.sinks.map((sink) => [
      sink.name,
      format.integer(sink.accepted),
      format.integer(sink.exported),
      lost(sink.lost),
      `${sink.queue.length} / ${sink.queue.capacity}`,
    ]),
  ];
  const sinks = table(
    [
      ["to", "text"],
      ["records", "number"],
      ["delivered", "number"],
      ["lost", "number"],
      ["queue", "number"],
    ],
    rows,
  );
  const more: [string, Cell][] = [
    ["shown to the hooks", format.integer(ledger.observed)],
    ["not sampled", format.integer(ledger.not_sampled)],
  ];
  if (ledger.journal_bytes !== null) more.push(["journal", format.bytes(ledger.journal_bytes)]);
  if (ledger.journal_errors) more.push(["journal errors", lost(ledger.journal_errors)]);
  if (ledger.alerts_lost > 0) more.push(["alerts lost", lost(ledger.alerts_lost)]);
  return el("div", {}, facts(more), sinks);
}

function lost(records: number): HTMLElement {
  return el("span", { class: records > 0 ? "far" : "", text: format.integer(records) });
}

function facts(rows: [string, Cell][]): HTMLElement {
  return el(
    "dl",
    { class: "facts" },
    ...rows.flatMap(([term, value]) => [el("dt", { text: term }), el("dd", {}, value)]),
  );
}
