// The curve of the row that is selected in the heat map, with its usual value.

import type { Curve, Steps, Values } from "../data/run";
import { ABSENT, type Heat } from "../data/heat";
import { el } from "../shared/dom";
import * as format from "../shared/format";
import { Chart } from "./chart";
import { memberAt, type Row } from "./heat/rows";
import { shadesOf, weightOf } from "./heat/shades";
import { quantity } from "./heat/words";
import type { Mark } from "./marks";

export class RowPanel {
  readonly element = el("div", { class: "row-panel" });
  private chart: Chart | null = null;
  private marks: Mark[] = [];
  private shown = "";

  constructor() {
    this.element.hidden = true;
    new ResizeObserver(() => this.chart?.resize()).observe(this.element);
  }

  /** Shows a row, or nothing. */
  show(heat: Heat | null, row: Row | null): void {
    this.element.hidden = !heat || !row;
    if (!heat || !row) {
      this.shown = "";
      return;
    }
    const member = row.isLayer ? loudest(heat, row) : (row.members[0] ?? 0);
    const name = heat.names[member] ?? "";
    const key = `${heat.kind} ${heat.statistic} ${name}`;
    if (key !== this.shown || !this.chart) {
      this.shown = key;
      this.chart?.destroy();
      const lines = [
        { curve: "value", label: format.words(heat.statistic) },
        { curve: "usual", label: "usual" },
      ];
      const title = `${name}, ${quantity(heat)}`;
      this.chart = new Chart({ title, lines, log: false, show: format.number }, () => this.marks);
      this.element.replaceChildren(this.chart.element);
    }
    this.chart.update(stepsOf(heat, member));
  }

  mark(marks: Mark[]): void {
    this.marks = marks;
    this.chart?.mark();
  }

  redraw(): void {
    this.chart?.restyle();
  }
}

/** The tensor of a layer that is farthest from its usual value. */
function loudest(heat: Heat, row: Row): number {
  const shades = shadesOf(heat, "change");
  let [best, most] = [row.members[0] ?? 0, -2];
  for (let column = 0; column < heat.columns; column += 1) {
    const member = memberAt(row, column, shades, heat.columns);
    const weight = weightOf(shades.places[member * heat.columns + column] ?? 0, "change");
    if (weight > most) [best, most] = [member, weight];
  }
  return best;
}

function stepsOf(heat: Heat, member: number): Steps {
  const last: Values = [...heat.row(member)].map((value) => (value === ABSENT ? null : value));
  const usual = median(last);
  const curve = (name: string, values: Values): [string, Curve] => [
    name,
    { name, last: values, low: [], high: [], broken: new Set() },
  ];
  const curves = new Map([
    curve("value", last),
    curve(
      "usual",
      last.map(() => usual),
    ),
  ]);
  const newest = (name: string) => curves.get(name)?.last.findLast((value) => value !== null) ?? null;
  return { first: heat.first, last: heat.last, width: 1, curves, newest };
}

function median(values: Values): number | null {
  const finite = values.filter((value): value is number => value !== null && Number.isFinite(value));
  finite.sort((a, b) => a - b);
  return finite[finite.length >> 1] ?? null;
}
