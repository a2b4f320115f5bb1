// The agent's documents, as defined in agent/history/src/document.rs.

/** A number, or one of three texts for numbers that JSON cannot represent. */
export type WireNumber = number | "NaN" | "Infinity" | "-Infinity";

export interface AxisState {
  generation: number;
  width: number;
  bins: number;
}

export interface AxisDocument extends AxisState {
  from: number;
  first: number[];
  last: number[];
  time: number[];
}

export interface CurveDocument {
  name: string;
  last: (WireNumber | null)[];
  low?: (WireNumber | null)[];
  high?: (WireNumber | null)[];
  broken?: number[];
}

export interface KindDocument {
  name: string;
  statistics: string[];
  rows: number;
}

export interface TensorState {
  kind: string;
  name: string;
  layer: string;
  step: number;
  value: WireNumber;
  usual: WireNumber | null;
  deviations: WireNumber;
}

export interface Tables {
  kinds: KindDocument[];
  rows_left_out: number;
  columns: AxisState;
  worst: TensorState[];
  update_ratios: TensorState[];
  /** The number of deviations from which on a value is unlikely to be chance; 0 if unknown. */
  far_deviations: number;
  /** The curves whose numbers are labels: a rank, an id. */
  labels: string[];
}

export interface Series {
  scope: "global" | "group" | "layer" | "tensor";
  name: string;
  signal: string;
  statistic: string | null;
  layer?: string;
  micro_step: number;
  vpp_stage: number;
}

export interface FirstMove {
  step: number;
  signal: string;
  layer: string;
  tensor?: string;
  value: WireNumber;
  expected: WireNumber;
}

export interface Alert {
  rule: string;
  severity: "info" | "warning" | "critical";
  phase: "begins" | "ends";
  findings: number;
  step: number;
  rank: number;
  time: string;
  series: Series;
  value: WireNumber;
  expected: { typical?: WireNumber; lower?: WireNumber; upper?: WireNumber };
  message: string;
  moved_first?: FirstMove;
  /** The incident of alerts that begin within a few steps of each other: only its headline was sent. */
  incident?: { step: number; headline: boolean };
}

export interface Cursor {
  generation: number;
  bins: number;
  alerts: number;
}

export interface Tail {
  version: number;
  cursor: Cursor;
  steps: AxisDocument;
  curves: CurveDocument[];
  tables: Tables;
  alerts: Alert[];
  alerts_seen: number;
  alerts_begun: number;
}

export interface Overview extends Tail {
  curves_left_out: number;
}

export interface HeatMap {
  version: number;
  kind: string;
  statistic: string;
  columns: AxisDocument;
  names: string[];
  layers: string[];
  layer_of: number[];
  rows: number;
  /** Base64 of little-endian float32, row after row; -1 for a missing value. */
  values: string;
}

export interface Queue {
  length: number;
  capacity: number;
}

export interface Ledger {
  observed: number;
  not_sampled: number;
  accepted: number;
  dropped: number;
  queue: Queue;
  sinks: { name: string; accepted: number; exported: number; lost: number; queue: Queue }[];
  alerts_lost: number;
  journal_bytes: number | null;
  journal_errors: number | null;
}

export interface Collective {
  op: string;
  group: string;
  started: number;
  failed: number;
  bytes: number;
  seconds: number;
  waited_seconds: number;
  median_seconds: number;
  p99_seconds: number;
  max_seconds: number;
}

export interface Cost {
  steps: number;
  step_seconds: number;
  measure_seconds: number;
  launch_seconds: number;
  offer_seconds: number;
  budget: number | null;
  sampling: number | null;
  bytes_read: number;
}

export interface Status {
  run: string;
  rank: number;
  world_size: number;
  host: string;
  version: string;
  step: number | null;
  seconds_since_last_step: number | null;
  ledger: Ledger | null;
  collectives: Collective[];
  cost: Cost | null;
}

/** The data in a page file, and the response of `/api/overview` (without the heat maps). */
export interface RunDocument {
  version: number;
  overview: Overview;
  status: Status;
  heat_maps?: HeatMap[];
}

/** An event `tail` of `/api/events`. */
export interface TailEvent {
  tail: Tail;
  status: Status;
}

/** The version of the documents that this page supports. */
export const VERSION = 2;

export function toNumber(value: WireNumber): number {
  if (typeof value === "number") return value;
  if (value === "Infinity") return Number.POSITIVE_INFINITY;
  if (value === "-Infinity") return Number.NEGATIVE_INFINITY;
  return Number.NaN;
}
