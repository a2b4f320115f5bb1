// From the values of a heat map to places on its colour scale.

import { ABSENT } from "../data/heat";

/** What colours mean: the value itself, or how many times the usual value of its row it is. */
export type Coloring = "value" | "change";

/** A table of values to be shown: rows of tensors, or of layers. */
export interface Grid {
  names: string[];
  /** Where one layer's rows begin, and its name. */
  groups: { row: number; name: string }[];
  columns: number;
  values: Float32Array;
}

export interface Scale {
  /** Smallest and largest value of the legend. */
  low: number;
  high: number;
  isLog: boolean;
  /** 0 to 255. */
  place: (value: number, row: number) => number;
  /** Of a row: what its values are held against. */
  usual: (row: number) => number;
}

/** Changes beyond this factor have the darkest colour. */
const MOST_CHANGE = 10;

export function scaleOf(grid: Grid, coloring: Coloring, isShare: boolean): Scale {
  const usual = coloring === "change" ? medians(grid) : new Float32Array(0);
  if (coloring === "change") {
    const most = Math.log(MOST_CHANGE);
    return {
      low: 1 / MOST_CHANGE,
      high: MOST_CHANGE,
      isLog: true,
      usual: (row) => usual[row] ?? 0,
      place: (value, row) => {
        const level = usual[row] ?? 0;
        if (level <= 0 || value <= 0) return value === level ? 127 : value > level ? 255 : 0;
        return clamp(127.5 * (1 + Math.log(value / level) / most));
      },
    };
  }
  const none = () => 0;
  if (isShare) return { low: 0, high: 1, isLog: false, place: (value) => clamp(255 * value), usual: none };
  const [low, high] = range(grid.values);
  const [from, to] = [Math.log(low), Math.log(high)];
  const place = (value: number) => (value <= 0 ? 0 : clamp((255 * (Math.log(value) - from)) / (to - from || 1)));
  return { low, high, isLog: true, place, usual: none };
}

function clamp(place: number): number {
  return Math.max(0, Math.min(255, Math.round(place)));
}

/** Without the outermost 0.2 %: one value must not take all the colours from the others. */
function range(values: Float32Array): [number, number] {
  const stride = Math.max(1, Math.floor(values.length / 100_000));
  const sample: number[] = [];
  for (let index = 0; index < values.length; index += stride) {
    const value = values[index] ?? ABSENT;
    if (value > 0 && Number.isFinite(value)) sample.push(value);
  }
  if (sample.length === 0) return [1e-3, 1];
  sample.sort((a, b) => a - b);
  const cut = Math.floor(sample.length * 0.002);
  const low = sample[cut] ?? 1;
  const high = sample[sample.length - 1 - cut] ?? low;
  return high > low * 1.01 ? [low, high] : [low / 2, high * 2];
}

function medians(grid: Grid): Float32Array {
  return Float32Array.from({ length: grid.names.length }, (_, row) => {
    const values = grid.values.subarray(row * grid.columns, (row + 1) * grid.columns);
    const present = values.filter((value) => value >= 0 && Number.isFinite(value)).sort();
    return present[present.length >> 1] ?? 0;
  });
}
