// The texts of a heat map: a summary as its text alternative, and the description of a cell.

import { ABSENT, type Heat } from "../../data/heat";
import * as format from "../../shared/format";
import { memberAt, type Row } from "./rows";
import { ABSENT_PLACE, BROKEN_PLACE, type Shades, weightOf } from "./shades";

/** The number of named rows, the most conspicuous first. */
const NAMED = 3;
/** A row within this factor of its usual value is not mentioned. */
const NEWS = 2;

/** The data that the texts require. */
export interface Shown {
  heat: Heat;
  shades: Shades;
  rows: Row[];
  places: Uint8Array;
}

export interface CellWords {
  name: string;
  step: string;
  value: string;
}

/** `norm of grad reduced`; a kind that is a number has no separate statistic. */
export function quantity({ kind, statistic }: Heat): string {
  return kind === statistic ? format.words(kind) : `${format.words(statistic)} of ${format.words(kind)}`;
}

/** A cell: its row, its step and its value. */
export function cellWords({ heat, shades, rows }: Shown, index: number, column: number): CellWords | null {
  const row = rows[index];
  if (!row) return null;
  const member = memberAt(row, column, shades, heat.columns);
  const tensor = heat.names[member] ?? "";
  const step = `step ${format.steps(heat.first[column] ?? 0, heat.last[column] ?? 0)}`;
  return { name: tensor, step, value: valueWords(heat, shades, member, column) };
}

function valueWords(heat: Heat, { usual }: Shades, member: number, column: number): string {
  const value = heat.at(member, column);
  if (value === ABSENT) return "not measured";
  const name = format.words(heat.statistic);
  if (!Number.isFinite(value)) return `${name} ${format.number(value)}`;
  const level = usual[member] ?? 0;
  const change = format.factor(value, level);
  return `${name} ${format.number(value)}${change ? `, ${change} its usual ${format.number(level)}` : ""}`;
}

/** The whole heat map in a few sentences. */
export function summary(shown: Shown): string {
  const { heat, shades, rows } = shown;
  const layers = rows.filter(({ isLayer }) => isLayer).length;
  const tensors = rows.length - layers;
  const what = [
    layers > 0 ? format.count(layers, "layer") : "",
    tensors > 0 || layers === 0 ? format.count(tensors, "tensor") : "",
  ];
  const range = `steps ${format.integer(heat.first[0] ?? 0)} to ${format.integer(heat.last.at(-1) ?? 0)}`;
  const meaning = shades.coloring === "change" ? "change from the usual value" : "value";
  const head = `Heat map of the ${quantity(heat)}, ${meaning}: ${what.filter(Boolean).join(", ")} over ${range}.`;
  return [head, ...notable(shown)].join(" ");
}

function notable(shown: Shown): string[] {
  const { heat, shades, rows, places } = shown;
  const { columns } = heat;
  const peaks = rows.map((_, index) => {
    let [column, most, broken] = [0, -2, -1];
    for (let at = 0; at < columns; at += 1) {
      const place = places[index * columns + at] ?? ABSENT_PLACE;
      if (place === BROKEN_PLACE) broken = at;
      const weight = place === BROKEN_PLACE ? -1 : weightOf(place, shades.coloring);
      if (weight > most) [column, most] = [at, weight];
    }
    return { index, column, most, broken };
  });
  const say = (index: number, column: number) => {
    const words = cellWords(shown, index, column);
    return words ? `${words.name} at ${words.step}: ${words.value}` : "";
  };
  const least = shades.coloring === "change" ? (127 * Math.log(NEWS)) / Math.log(10) : 0;
  // An open layer shows the same as its tensors.
  const isOwn = ({ index }: { index: number }) => !rows[index]?.isOpen;
  const farthest = peaks.filter((peak) => isOwn(peak) && peak.most > least).toSorted((a, b) => b.most - a.most);
  const broken = peaks.filter((peak) => isOwn(peak) && peak.broken >= 0);
  const sentences: string[] = [];
  if (farthest.length > 0) {
    const named = farthest.slice(0, NAMED).map(({ index, column }) => say(index, column));
    sentences.push(`${shades.coloring === "change" ? "Farthest from usual" : "Largest"}: ${named.join("; ")}.`);
  }
  if (broken.length > 0) {
    const named = broken.slice(0, NAMED).map(({ index, broken }) => say(index, broken));
    sentences.push(`Not finite in ${format.count(broken.length, "row")}: ${named.join("; ")}.`);
  }
  return sentences;
}
