// A run of the page, kept up to date by the tails that the agent sends.

import {
  type Alert,
  type AxisDocument,
  type Cursor,
  type CurveDocument,
  type RunDocument,
  type Status,
  type Tables,
  type TailEvent,
  toNumber,
  type WireNumber,
} from "./contract";
import { withNew } from "./episodes";

/** Curves over steps: those of a run, or of a row of a heat map. */
export interface Steps {
  readonly first: number[];
  readonly last: number[];
  /** The largest number of steps in a bin. */
  readonly width: number;
  readonly curves: Map<string, Curve>;
  newest(name: string): number | null;
}

/** A number for each bin; `null` if it has none. NaN and infinities are numbers here. */
export type Values = (number | null)[];

export interface Curve {
  name: string;
  last: Values;
  /** The range of the finite values; empty while bins hold one step each. */
  low: Values;
  high: Values;
  /** The bins with a non-finite value, while they hold several steps. */
  broken: Set<number>;
}

export class Run implements Steps {
  first: number[] = [];
  last: number[] = [];
  time: number[] = [];
  width = 1;
  readonly curves = new Map<string, Curve>();
  curvesLeftOut = 0;
  alerts: Alert[] = [];
  /** The number of alerts in the whole run; `alerts` are the newest. */
  alertsBegun = 0;
  tables: Tables;
  status: Status;
  cursor: Cursor;

  constructor(document: RunDocument) {
    const { overview, status } = document;
    this.tables = overview.tables;
    this.status = status;
    this.cursor = overview.cursor;
    this.curvesLeftOut = overview.curves_left_out;
    this.alerts = overview.alerts;
    this.alertsBegun = overview.alerts_begun;
    this.readSteps(overview.steps);
    this.readCurves(overview.curves, 0);
  }

  /** Applies the changes since the cursor. */
  apply({ tail, status }: TailEvent): void {
    this.status = status;
    this.tables = tail.tables;
    this.cursor = tail.cursor;
    this.alerts = withNew(this.alerts, tail.alerts);
    this.alertsBegun = tail.alerts_begun;
    this.readSteps(tail.steps);
    this.readCurves(tail.curves, tail.steps.from);
  }

  /** The newest value of a curve that is not `null`. */
  newest(name: string): number | null {
    return this.curves.get(name)?.last.findLast((value) => value !== null) ?? null;
  }

  /** The bin of a step or, if the step was skipped, the one before it; -1 before the first. */
  binAt(step: number): number {
    let [low, high] = [0, this.first.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.first[middle] ?? 0) <= step) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  private readSteps(steps: AxisDocument): void {
    this.width = steps.width;
    this.first.splice(steps.from, this.first.length, ...steps.first);
    this.last.splice(steps.from, this.last.length, ...steps.last);
    this.time.splice(steps.from, this.time.length, ...steps.time);
  }

  private readCurves(curves: CurveDocument[], from: number): void {
    for (const { name, last, low, high, broken } of curves) {
      const curve = this.curves.get(name) ?? { name, last: [], low: [], high: [], broken: new Set() };
      replace(curve.last, from, last);
      replace(curve.low, from, low ?? []);
      replace(curve.high, from, high ?? []);
      curve.broken = new Set([...[...curve.broken].filter((bin) => bin < from), ...(broken ?? [])]);
      this.curves.set(name, curve);
    }
  }
}

/** Replaces the values from a bin on; bins without data get none. */
function replace(values: Values, from: number, tail: (WireNumber | null)[]): void {
  if (tail.length === 0) return;
  while (values.length < from) values.push(null);
  values.length = from;
  for (const value of tail) values.push(value === null ? null : toNumber(value));
}
