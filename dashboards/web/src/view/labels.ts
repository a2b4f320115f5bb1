// Numbers that are labels, such as a rank or an id: shown as text, because they cannot be interpolated.

import type { Run, Values } from "../data/run";
import { el } from "../shared/dom";
import * as format from "../shared/format";
import { type Cell, table } from "../shared/table";

/** The number of labels listed for a curve. */
const NAMED = 4;

/** Each label curve with its newest value, its first step, and the frequency of each label; `null` if there is none. */
export function labelTable(run: Run): HTMLElement | null {
  const curves = run.tables.labels.filter((name) => run.newest(name) !== null);
  if (curves.length === 0) return null;
  const rows = curves.map((name): Cell[] => {
    const values = run.curves.get(name)?.last ?? [];
    const bin = values.findLastIndex((value) => value !== null);
    return [
      el("span", { class: "tensor", text: name.slice("scalar/".length), title: name.slice("scalar/".length) }),
      format.number(values[bin] ?? null),
      format.integer(run.first[changedAt(values, bin)] ?? 0),
      shares(values),
    ];
  });
  return table(
    [
      ["name", "text"],
      ["now", "number"],
      ["since step", "number"],
      ["frequency", "text"],
    ],
    rows,
  );
}

/** The bin in which the newest label began. */
function changedAt(values: Values, newest: number): number {
  let begin = newest;
  for (let bin = newest; bin >= 0; bin -= 1) {
    const value = values[bin];
    if (value === null || value === undefined) continue;
    if (value !== values[newest]) break;
    begin = bin;
  }
  return begin;
}

/** `0: 52%, 1: 48% of 100`. */
function shares(values: Values): string {
  const counts = new Map<number, number>();
  for (const value of values) if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
  const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
  if (counts.size < 2) return `always, ${format.count(all, "time")}`;
  const ordered = [...counts].toSorted((a, b) => b[1] - a[1]);
  const named = ordered
    .slice(0, NAMED)
    .map(([value, count]) => `${format.number(value)}: ${format.percent(count / all)}`);
  const more = ordered.length > NAMED ? `, ${format.count(ordered.length - NAMED, "other")}` : "";
  return `${named.join(", ")}${more} of ${format.count(all, "value")}`;
}
