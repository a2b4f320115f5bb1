// The rows of a heat map: layers that open to their tensors, or all tensors; a filter selects some of them.

import type { Heat } from "../../data/heat";
import { matcher } from "../../shared/filter";
import { ABSENT_PLACE, type Shades, weightOf } from "./shades";

export type Grouping = "layers" | "tensors";

/** A filter with at most this many matching tensors shows them, also by layer. */
const FEW = 60;

/** A visible row. */
export interface Row {
  name: string;
  isLayer: boolean;
  /** For a tensor: whether it is below the row of its open layer. */
  isInside: boolean;
  /** For a layer: whether its tensors are shown below it. */
  isOpen: boolean;
  layer: number;
  /** The rows of the heat map that it combines. */
  members: number[];
}

export interface RowOptions {
  filter: string;
  grouping: Grouping;
  /** The names of the open layers. */
  open: ReadonlySet<string>;
}

/** Layers in order of appearance, with the tensors of each together. */
export function rowsOf(heat: Heat, { filter, grouping, open }: RowOptions): Row[] {
  const matches = matcher(filter);
  const byLayer: number[][] = heat.layers.map(() => []);
  let left = 0;
  for (let row = 0; row < heat.rows; row += 1) {
    if (!matches(heat.names[row] ?? "")) continue;
    byLayer[heat.layerOf[row] ?? 0]?.push(row);
    left += 1;
  }
  const isFew = filter.trim() !== "" && left <= FEW;
  return byLayer.flatMap((members, layer) => {
    if (members.length === 0) return [];
    const name = heat.layers[layer] ?? "";
    const tensors = (isInside: boolean): Row[] =>
      members.map((row) => ({
        name: heat.names[row] ?? "",
        isLayer: false,
        isInside,
        isOpen: false,
        layer,
        members: [row],
      }));
    // A layer with one tensor is shown as that tensor.
    if (grouping === "tensors" || members.length === 1) return tensors(false);
    const isOpen = open.has(name) || isFew;
    const row: Row = { name, isLayer: true, isInside: false, isOpen, layer, members };
    return isOpen ? [row, ...tensors(true)] : [row];
  });
}

/** The tensor of a row that a cell shows: the most conspicuous one. */
export function memberAt(row: Row, column: number, shades: Shades, columns: number): number {
  let [best, most] = [row.members[0] ?? 0, -2];
  for (const member of row.members) {
    const weight = weightOf(shades.places[member * columns + column] ?? ABSENT_PLACE, shades.coloring);
    if (weight > most) [best, most] = [member, weight];
  }
  return best;
}

/** The places of all cells, row after row. */
export function placesOf(rows: Row[], shades: Shades, columns: number): Uint8Array {
  const places = new Uint8Array(rows.length * columns);
  const weights = Float32Array.from({ length: 256 }, (_, place) => weightOf(place, shades.coloring));
  rows.forEach(({ members }, index) => {
    const start = index * columns;
    const [first = 0, ...others] = members;
    places.set(shades.places.subarray(first * columns, (first + 1) * columns), start);
    for (const member of others) {
      for (let column = 0; column < columns; column += 1) {
        const place = shades.places[member * columns + column] ?? ABSENT_PLACE;
        const shown = places[start + column] ?? ABSENT_PLACE;
        if ((weights[place] ?? -1) > (weights[shown] ?? -1)) places[start + column] = place;
      }
    }
  });
  return places;
}
