// Which rows of a heat map are shown: those that the filter leaves, by layer, or a row for each layer.

import { ABSENT, type Heat } from "../data/heat";
import { matcher } from "../shared/filter";
import type { Grid } from "./scale";

export type Grouping = "tensors" | "layers";

export function gridOf(heat: Heat, filter: string, grouping: Grouping): Grid {
  const matches = matcher(filter);
  const rows: number[] = [];
  for (let row = 0; row < heat.rows; row += 1) if (matches(heat.names[row] ?? "")) rows.push(row);
  // Layers in the order they came, rows of one layer together.
  rows.sort((a, b) => (heat.layerOf[a] ?? 0) - (heat.layerOf[b] ?? 0) || a - b);
  return grouping === "layers" ? byLayer(heat, rows) : byTensor(heat, rows);
}

function byTensor(heat: Heat, rows: number[]): Grid {
  const { columns } = heat;
  const values = new Float32Array(rows.length * columns);
  rows.forEach((row, index) => {
    values.set(heat.values.subarray(row * columns, (row + 1) * columns), index * columns);
  });
  const groups: Grid["groups"] = [];
  rows.forEach((row, index) => {
    const name = heat.layers[heat.layerOf[row] ?? 0] ?? "";
    if (groups.at(-1)?.name !== name) groups.push({ row: index, name });
  });
  return { names: rows.map((row) => heat.names[row] ?? ""), groups, columns, values };
}

/** The largest value of a layer's tensors; one that is not a number outranks all. */
function byLayer(heat: Heat, rows: number[]): Grid {
  const { columns } = heat;
  const layers = [...new Set(rows.map((row) => heat.layerOf[row] ?? 0))];
  const place = new Map(layers.map((layer, index) => [layer, index]));
  const values = new Float32Array(layers.length * columns).fill(ABSENT);
  for (const row of rows) {
    const start = (place.get(heat.layerOf[row] ?? 0) ?? 0) * columns;
    for (let column = 0; column < columns; column += 1) {
      const value = heat.at(row, column);
      const index = start + column;
      if (Number.isNaN(value) || value > (values[index] ?? ABSENT)) values[index] = value;
    }
  }
  return { names: layers.map((layer) => heat.layers[layer] ?? ""), groups: [], columns, values };
}
