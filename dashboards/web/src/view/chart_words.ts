// A chart in words, as a text alternative.

import type { Steps, Values } from "../data/run";
import * as format from "../shared/format";
import type { Panel } from "./chart";
import type { Mark } from "./marks";

export function chartSummary(run: Steps, panel: Panel, marks: Mark[]): string {
  const range = `${panel.title}, steps ${format.integer(run.first[0] ?? 0)} to ${format.integer(run.last.at(-1) ?? 0)}`;
  const sentences = panel.lines.map(({ curve, label }) => {
    const name = panel.lines.length > 1 ? `${label} ` : "";
    const found = run.curves.get(curve);
    if (!found) return "";
    const low = extreme(found.low.length > 0 ? found.low : found.last, -1);
    const high = extreme(found.high.length > 0 ? found.high : found.last, 1);
    const at = (bin: number) => `step ${format.steps(run.first[bin] ?? 0, run.last[bin] ?? 0)}`;
    const ends =
      low && high
        ? `, lowest ${panel.show(low.value)} at ${at(low.bin)}, highest ${panel.show(high.value)} at ${at(high.bin)}`
        : "";
    const isBroken = (value: number | null, bin: number) =>
      (value !== null && !Number.isFinite(value)) || found.broken.has(bin);
    const broken = found.last.filter(isBroken).length;
    const bins = run.width > 1 ? "place" : "step";
    const notFinite = broken > 0 ? `, not finite at ${format.count(broken, bins)}` : "";
    return `${name}newest ${panel.show(run.newest(curve))}${ends}${notFinite}`;
  });
  const alerts = marks.reduce((sum, mark) => sum + mark.alerts.length, 0);
  const marked = alerts > 0 ? `${format.count(alerts, "alert")} marked` : "";
  return `${range}: ${[...sentences, marked].filter(Boolean).join("; ")}.`;
}

/** The smallest or largest finite value, and its bin. */
function extreme(values: Values, sign: 1 | -1): { bin: number; value: number } | null {
  let found: { bin: number; value: number } | null = null;
  values.forEach((value, bin) => {
    if (value === null || !Number.isFinite(value)) return;
    if (!found || sign * value > sign * found.value) found = { bin, value };
  });
  return found;
}
