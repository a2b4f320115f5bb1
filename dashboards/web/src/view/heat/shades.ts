// Converts the values of a heat map to places on its colour scale.

import { ABSENT, type Heat } from "../../data/heat";

/** The meaning of colours: the factor between a value and its usual one, or the value itself. */
export type Coloring = "change" | "value";

/** The place of a cell without a value, and of a non-finite one; all others are above, up to 255. */
export const ABSENT_PLACE = 0;
export const BROKEN_PLACE = 1;
const LOWEST = 2;
const SPAN = 255 - LOWEST;
/** The place of a value at its usual level. */
export const MIDDLE = LOWEST + SPAN / 2;
/** The number of values from which the ends of the colours are computed. */
const SAMPLE = 40_000;
/** The factor from which on changes have the strongest colour. */
export const MOST_CHANGE = 10;

export interface Shades {
  coloring: Coloring;
  /** A place per cell, in the order of the heat map's values. */
  places: Uint8Array;
  /** The median of each row's values; 0 if it has none. */
  usual: Float32Array;
  /** The ends of the legend. */
  low: number;
  high: number;
  isLog: boolean;
}

interface Known {
  revision: number;
  usual: Float32Array;
  shades: Partial<Record<Coloring, Shades>>;
}

/** The cached colourings and usual values of an unchanged heat map. */
const known = new WeakMap<Heat, Known>();

export function shadesOf(heat: Heat, coloring: Coloring): Shades {
  let found = known.get(heat);
  if (!found || found.revision !== heat.revision) {
    found = { revision: heat.revision, usual: mediansOf(heat), shades: {} };
    known.set(heat, found);
  }
  const shades = found.shades[coloring] ?? computed(heat, coloring, found.usual);
  found.shades[coloring] = shades;
  return shades;
}

function computed(heat: Heat, coloring: Coloring, usual: Float32Array): Shades {
  const places = new Uint8Array(heat.values.length);
  const [low, high] =
    coloring === "change" ? [1 / MOST_CHANGE, MOST_CHANGE] : heat.statistic === "zeros" ? [0, 1] : rangeOf(heat.values);
  const isLog = coloring === "change" || heat.statistic !== "zeros";
  const place = placing(isLog, low, high);
  for (let row = 0, index = 0; row < heat.rows; row += 1) {
    const level = coloring === "change" ? (usual[row] ?? 0) : 1;
    for (let column = 0; column < heat.columns; column += 1, index += 1) {
      const value = heat.values[index] ?? ABSENT;
      if (value === ABSENT) places[index] = ABSENT_PLACE;
      else if (!Number.isFinite(value)) places[index] = BROKEN_PLACE;
      else if (level > 0) places[index] = place(value / level);
      // The usual value is zero: any other value is a change without a factor.
      else places[index] = value > 0 ? 255 : MIDDLE;
    }
  }
  return { coloring, places, usual, low, high, isLog };
}

/** Maps a value to its place between two others. */
function placing(isLog: boolean, low: number, high: number): (value: number) => number {
  const within = (share: number) => LOWEST + Math.max(0, Math.min(SPAN, Math.round(SPAN * share)));
  if (!isLog) return (value) => within((value - low) / (high - low || 1));
  const [from, span] = [Math.log(low), Math.log(high) - Math.log(low) || 1];
  return (value) => (value > 0 ? within((Math.log(value) - from) / span) : LOWEST);
}

/**
 * How conspicuous a place is: non-finite values most, then those farthest from the usual value, or the largest values.
 */
export function weightOf(place: number, coloring: Coloring): number {
  if (place === ABSENT_PLACE) return -1;
  if (place === BROKEN_PLACE) return 1000;
  return coloring === "change" ? Math.abs(place - MIDDLE) : place;
}

/** The range without the outermost 0.2 %: one value must not compress the colours of the others. */
function rangeOf(values: Float32Array): [number, number] {
  const stride = Math.max(1, Math.floor(values.length / SAMPLE));
  const room = new Float32Array(Math.ceil(values.length / stride));
  let found = 0;
  for (let index = 0; index < values.length; index += stride) {
    const value = values[index] ?? ABSENT;
    if (value > 0 && Number.isFinite(value)) room[found++] = value;
  }
  const sample = room.subarray(0, found).sort();
  if (sample.length === 0) return [1e-3, 1];
  const cut = Math.floor(sample.length * 0.002);
  const low = sample[cut] ?? 1;
  const high = sample[sample.length - 1 - cut] ?? low;
  return high > low * 1.01 ? [low, high] : [low / 2, high * 2];
}

function mediansOf(heat: Heat): Float32Array {
  const sorted = new Float32Array(heat.columns);
  return Float32Array.from({ length: heat.rows }, (_, row) => {
    let present = 0;
    for (const value of heat.row(row)) if (value >= 0 && Number.isFinite(value)) sorted[present++] = value;
    const values = sorted.subarray(0, present).sort();
    return values[values.length >> 1] ?? 0;
  });
}
