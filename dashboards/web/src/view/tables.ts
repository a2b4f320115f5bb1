// The tables: tensors far from their usual values, collective operations, the cost of the monitor, and the record
// counters.

import { type Collective, type Cost, type Ledger, type Tables, type TensorState, toNumber } from "../data/contract";
import { clickable, el } from "../shared/dom";
import { matcher } from "../shared/filter";
import * as format from "../shared/format";
import { type Cell, table } from "../shared/table";

/** The number of listed tensors. */
const MOST = 12;

function name(state: TensorState): HTMLElement {
  return el("span", { class: "tensor", text: state.name, title: state.name });
}

/** Whether a value is unlikely to be chance, given the number of examined values. */
function isFar({ value, deviations }: TensorState, far: number): boolean {
  return !Number.isFinite(toNumber(value)) || Math.abs(toNumber(deviations)) >= far;
}

/** The tensors whose newest value is far from their usual one; `choose` is called with the clicked one. */
export function farthest(tables: Tables, filter: string, choose: (state: TensorState) => void): HTMLElement {
  const matches = matcher(filter);
  const far = tables.worst.filter((state) => isFar(state, tables.far_deviations));
  const matching = far.filter((state) => matches(`${state.name} ${state.kind}`));
  const series = tables.kinds.reduce((sum, { rows }) => sum + rows, 0);
  if (matching.length === 0) {
    const text =
      far.length > 0
        ? "No tensor far from its usual value matches the filter."
        : "No tensor is far from its usual value.";
    const bound = `The usual value is the mean of about 50 steps before. Far means at least ${tables.far_deviations.toFixed(1)} standard deviations, for ${format.count(series, "series", "series")}.`;
    return el("div", {}, el("p", { text }), series > 0 ? el("p", { class: "note", text: bound }) : null);
  }
  const items = matching.slice(0, MOST).map((state) => el("li", {}, farItem(state, choose)));
  const more = matching.length - items.length;
  const rest = more > 0 ? el("p", { class: "note", text: `and ${format.integer(more)} more` }) : null;
  return el("div", {}, el("ol", { class: "far-list" }, ...items), rest);
}

function farItem(state: TensorState, choose: (state: TensorState) => void): HTMLElement {
  const value = toNumber(state.value);
  const usual = state.usual === null ? null : toNumber(state.usual);
  const isBroken = !Number.isFinite(value);
  const change = isBroken ? format.number(value) : format.factor(value, usual) || "changed";
  const now = isBroken ? "" : `${format.number(value)}, `;
  return clickable(
    { class: "far-item" },
    () => choose(state),
    el("span", { class: "far-head" }, name(state), el("b", { class: isBroken ? "broken" : "far", text: change })),
    el("span", { class: "muted", text: `${format.words(state.kind)} ${now}usually ${format.number(usual)}` }),
    el("span", { class: "muted far-step", text: `step ${format.integer(state.step)}` }),
  );
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
      ["total", "number"],
    ],
    all.toSorted((a, b) => b.seconds - a.seconds).map(row),
  );
}

/** The share of the step time that the monitor takes; `null` before a step has a time. */
function costShare(cost: Cost | null): number | null {
  if (!cost || cost.step_seconds <= 0) return null;
  return (cost.measure_seconds + cost.launch_seconds + cost.offer_seconds) / cost.step_seconds;
}

export function cost(cost: Cost | null): HTMLElement | null {
  const share = costShare(cost);
  if (!cost || share === null) return null;
  const per = (seconds: number) => format.seconds(seconds / Math.max(1, cost.steps));
  const rows: [string, string][] = [
    [
      "share of step time",
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
    ["observed", format.integer(ledger.observed)],
    ["not sampled", format.integer(ledger.not_sampled)],
  ];
  if (ledger.journal_bytes !== null) more.push(["journal", format.bytes(ledger.journal_bytes)]);
  if (ledger.journal_errors) more.push(["journal errors", lost(ledger.journal_errors)]);
  if (ledger.alerts_lost > 0) more.push(["alerts not delivered", lost(ledger.alerts_lost)]);
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
