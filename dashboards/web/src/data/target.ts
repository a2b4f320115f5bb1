// Finds the parts of the page that an alert concerns: a row of a heat map, a curve.

import type { Alert, KindDocument } from "./contract";

/** A row to show. */
export interface Target {
  /** The kind and statistic of the heat map; `null` for the one that is shown. */
  kind: string | null;
  statistic: string | null;
  /** A tensor, or a layer. */
  name: string;
  isLayer: boolean;
}

/** The kinds that a signal of an alert stands for, the best first. */
const KINDS: Record<string, string[]> = { grad: ["grad_unreduced", "grad_reduced"] };
/** Statistics of alerts that no heat map has, and their best substitutes. */
const STATISTICS: Record<string, string> = {
  nans: "norm",
  infs: "norm",
  min: "absmax",
  max: "absmax",
  abs_max: "absmax",
};

/** The row that an alert names, or else the one that moved first; `null` if it names neither. */
export function targetOf(alert: Alert, kinds: KindDocument[]): Target | null {
  const { series, moved_first: move } = alert;
  const prefix = series.vpp_stage > 0 ? `${series.vpp_stage}:` : "";
  const at = (signal: string, statistic: string | null, name: string, isLayer: boolean): Target => {
    const kind = kindOf(signal, kinds);
    const wanted = statistic === null ? null : (STATISTICS[statistic] ?? statistic);
    const has = kind?.statistics.includes(wanted ?? "") ?? false;
    return { kind: kind?.name ?? null, statistic: has ? wanted : (kind?.statistics[0] ?? null), name, isLayer };
  };
  if (series.scope === "tensor" || series.scope === "layer") {
    return at(series.signal, series.statistic, prefix + series.name, series.scope === "layer");
  }
  if (!move || (!move.tensor && !move.layer) || move.signal === "scalar") return null;
  return at(move.signal, "norm", move.tensor ?? move.layer, !move.tensor);
}

function kindOf(signal: string, kinds: KindDocument[]): KindDocument | undefined {
  const names = KINDS[signal] ?? [signal];
  return names.map((name) => kinds.find((kind) => kind.name === name)).find(Boolean);
}

/** The curve of the whole run that an alert concerns. */
export function curveOf({ series, moved_first: move }: Alert): string | null {
  if (series.signal === "scalar") return `scalar/${series.name}`;
  if (series.scope === "tensor" || series.scope === "layer") return null;
  switch (series.signal) {
    case "grad":
    case "grad_reduced":
    case "grad_unreduced":
    case "grad_norm_ratio":
      return "grad_norm";
    case "update":
      return "update_norm";
    case "update_ratio":
      return "update_ratio_max";
    case "step_time":
      return "step_seconds";
    case "straggler_lag":
      return `scalar/straggler_lag_seconds/${series.name}`;
    case "loss":
    case "learning_rate":
      return series.signal;
    default:
      return move?.signal === "scalar" && move.tensor ? `scalar/${move.tensor}` : null;
  }
}
