// The curves: a panel for what belongs together, all over the same steps.

import uPlot from "uplot";
import type { Run, Values } from "../data/run";
import { button, el } from "../shared/dom";
import * as format from "../shared/format";
import { type Mark, marksPlugin } from "./marks";
import { color } from "../shared/theme";

interface Line {
  curve: string;
  label: string;
}

interface Panel {
  title: string;
  lines: Line[];
  /** Logarithmic from the beginning. */
  log: boolean;
  show: (value: number | null) => string;
}

const line = (curve: string, label: string): Line => ({ curve, label });

/** In the order of the page; a panel without a value is not there. */
const PANELS: Panel[] = [
  { title: "Loss", lines: [line("loss", "loss")], log: false, show: format.number },
  {
    title: "Gradient norm",
    lines: [line("grad_norm", "norm"), line("framework_grad_norm", "framework's")],
    log: true,
    show: format.number,
  },
  {
    title: "Update ratio",
    lines: [line("update_ratio_max", "largest"), line("update_ratio_median", "median")],
    log: true,
    show: format.number,
  },
  { title: "Update norm", lines: [line("update_norm", "norm")], log: true, show: format.number },
  { title: "Learning rate", lines: [line("learning_rate", "rate")], log: false, show: format.number },
  {
    title: "Step time",
    lines: [line("step_seconds", "step"), line("collect_seconds", "of it trainmon")],
    log: true,
    show: format.seconds,
  },
  { title: "Collective operations", lines: [line("collective_seconds", "per step")], log: false, show: format.seconds },
];

/** Panels of the script's own numbers, beyond which the page says that there are more. */
const MAX_SCALARS = 24;
/** Above it a linear scale shows the largest value only. */
const WIDE = 30;

export class Curves {
  readonly element = el("div", { class: "curves" });
  private readonly more = el("p", { class: "note" });
  private readonly charts = new Map<string, Chart>();
  private marks: Mark[] = [];

  constructor() {
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  update(run: Run, marks: Mark[]): void {
    this.marks = marks;
    const scalars = [...run.curves.keys()].filter((name) => name.startsWith("scalar/"));
    const panels = [...PANELS, ...scalars.slice(0, MAX_SCALARS).map(scalarPanel)];
    const shown = new Set<string>();
    for (const panel of panels) {
      const present = panel.lines.filter(({ curve }) => run.newest(curve) !== null);
      // A script's number may be called as a panel is.
      const key = panel.lines[0]?.curve;
      if (present.length === 0 || key === undefined) continue;
      shown.add(key);
      let chart = this.charts.get(key);
      if (!chart || chart.lines.length !== present.length) {
        chart?.destroy();
        const next = new Chart({ ...panel, lines: present }, () => this.marks);
        if (chart) chart.element.replaceWith(next.element);
        else this.element.append(next.element);
        chart = next;
        this.charts.set(key, chart);
      }
      chart.update(run);
    }
    // Another run may have begun on the same port.
    for (const [key, chart] of this.charts) {
      if (shown.has(key)) continue;
      chart.destroy();
      chart.element.remove();
      this.charts.delete(key);
    }
    const hidden = Math.max(0, scalars.length - MAX_SCALARS) + run.curvesLeftOut;
    this.more.textContent = hidden > 0 ? `${hidden} more curves are not drawn.` : "";
    if (hidden > 0) this.element.append(this.more);
  }

  /** Draws anew: colours or marks have changed. */
  redraw(): void {
    for (const chart of this.charts.values()) chart.restyle();
  }

  private resize(): void {
    for (const chart of this.charts.values()) chart.resize();
  }
}

function scalarPanel(curve: string): Panel {
  const name = curve.slice("scalar/".length);
  return { title: name, lines: [line(curve, "value")], log: false, show: format.number };
}

class Chart {
  readonly element: HTMLElement;
  readonly lines: Line[];
  private readonly readout = el("span", { class: "readout" });
  private readonly scale: HTMLButtonElement;
  private readonly holder = el("div", { class: "plot" });
  private plot: uPlot | null = null;
  private run: Run | null = null;
  private log: boolean;
  /** Until the reader chooses a scale, the values do. */
  private isChosen = false;
  private isRanged = false;

  constructor(
    private readonly panel: Panel,
    private readonly marks: () => Mark[],
  ) {
    this.lines = panel.lines;
    this.log = panel.log;
    this.scale = button(this.scaleName(), "linear or logarithmic", () => {
      this.isChosen = true;
      this.setScale(!this.log);
    });
    const title = el("h3", { text: panel.title, title: panel.title });
    this.element = el("figure", { class: "panel" }, el("figcaption", {}, title, this.readout, this.scale), this.holder);
  }

  private scaleName(): string {
    return this.log ? "log" : "lin";
  }

  private setScale(log: boolean): void {
    this.log = log;
    this.scale.textContent = this.scaleName();
    this.rebuild();
  }

  /** A spike must not press all other values to the ground. */
  private isWide(run: Run): boolean {
    const sorted = Float64Array.from(this.finite(run, "high")).sort();
    const [middle, most] = [sorted[sorted.length >> 1] ?? 0, sorted.at(-1) ?? 0];
    return most > WIDE * middle && this.finite(run, "low").every((value) => value > 0);
  }

  /** The ends of the bins; where each holds one step, the values. */
  private finite(run: Run, end: "low" | "high"): number[] {
    const values = this.lines.flatMap(({ curve }) => {
      const found = run.curves.get(curve);
      return found ? (found[end].length > 0 ? found[end] : found.last) : [];
    });
    return values.filter((value): value is number => value !== null && Number.isFinite(value));
  }

  update(run: Run): void {
    this.run = run;
    if (!this.isChosen && !this.log && this.isWide(run)) this.setScale(true);
    const isRanged = run.width > 1;
    if (!this.plot || isRanged !== this.isRanged) {
      this.isRanged = isRanged;
      this.rebuild();
    } else {
      this.setData(this.plot, run);
    }
    this.read(this.plot?.cursor.idx ?? null);
  }

  /** New values; the steps that the reader chose to see stay. */
  private setData(plot: uPlot, run: Run): void {
    const steps = plot.data[0];
    const { min, max } = plot.scales.x ?? {};
    const [first, last] = [steps[0], steps.at(-1)];
    const isKnown = min != null && max != null && first !== undefined && last !== undefined;
    plot.batch(() => {
      plot.setData(this.data(run), true);
      if (isKnown && (min > first || max < last)) plot.setScale("x", { min, max });
    });
  }

  resize(): void {
    const width = this.holder.clientWidth;
    const height = this.holder.clientHeight;
    if (this.plot && width > 0 && (width !== this.plot.width || height !== this.plot.height)) {
      this.plot.setSize({ width, height });
    }
  }

  restyle(): void {
    if (this.run) this.rebuild();
  }

  destroy(): void {
    this.plot?.destroy();
  }

  /** The range of a bin, where it holds several steps, and the newest value of each line. */
  private data(run: Run): uPlot.AlignedData {
    const positive = this.log ? this.finite(run, "low").filter((value) => value > 0) : [];
    const floor = positive.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY) / 2;
    const columns = this.lines.flatMap(({ curve }) => {
      const { last, low, high } = run.curves.get(curve) ?? { last: [], low: [], high: [] };
      const drawable = (values: Values) => values.map((value) => this.drawable(value, floor));
      return this.isRanged ? [drawable(high), drawable(low), drawable(last)] : [drawable(last)];
    });
    const length = run.last.length;
    for (const column of columns) while (column.length < length) column.push(null);
    return [run.last, ...columns] as uPlot.AlignedData;
  }

  /** What is not finite has no place; `marks` says there what it was. On a logarithmic scale 0 stands below all others. */
  private drawable(value: number | null, floor: number): number | null {
    if (value === null || !Number.isFinite(value)) return null;
    return this.log && value <= 0 ? (Number.isFinite(floor) ? floor : null) : value;
  }

  private rebuild(): void {
    if (!this.run) return;
    this.plot?.destroy();
    const ranged = this.isRanged;
    const colors = [color("accent"), color("second")];
    const series: uPlot.Series[] = [{}];
    const bands: uPlot.Band[] = [];
    this.lines.forEach((_, index) => {
      const stroke = colors[index] ?? color("text");
      if (ranged) {
        const high = series.length;
        // A bin is narrower than a pixel: a spike of one step shows as a line, not as an area.
        const edge = { stroke: `${stroke}a0`, width: 1, points: { show: false }, spanGaps: true };
        series.push({ ...edge }, { ...edge });
        bands.push({ series: [high, high + 1], fill: `${stroke}38` });
      }
      series.push({ stroke, width: 1.5, points: { show: false }, spanGaps: true });
    });
    const options: uPlot.Options = {
      width: Math.max(200, this.holder.clientWidth || 420),
      height: this.holder.clientHeight || 168,
      padding: [10, 16, 0, 0],
      legend: { show: false },
      cursor: {
        sync: { key: "steps", scales: ["x", null] },
        drag: { x: true, y: false, uni: 20 },
        points: { size: 6 },
      },
      scales: { x: { time: false }, y: { distr: this.log ? 3 : 1 } },
      axes: [this.axis(28, (value) => format.integer(value)), this.axis(58, this.panel.show)],
      series,
      bands,
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx ?? null)] },
      plugins: [
        marksPlugin({
          marks: this.marks,
          first: () => this.run?.first ?? [],
          last: () => this.run?.last ?? [],
          broken: () => this.broken(),
        }),
      ],
    };
    this.plot = new uPlot(options, this.data(this.run), this.holder);
  }

  private axis(size: number, show: (value: number) => string): uPlot.Axis {
    return {
      size,
      font: `11px ${color("font")}`,
      stroke: color("muted"),
      grid: { stroke: color("grid"), width: 1 },
      ticks: { show: false },
      gap: 6,
      values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : show(tick))),
    };
  }

  /** The bins in which a value was not finite. */
  private broken(): boolean[] {
    const run = this.run;
    const isBroken: boolean[] = [];
    for (const { curve } of this.lines) {
      const found = run?.curves.get(curve);
      found?.last.forEach((value, bin) => {
        if ((value !== null && !Number.isFinite(value)) || found.broken.has(bin)) isBroken[bin] = true;
      });
    }
    return isBroken;
  }

  /** Says the values under the pointer, or the newest. */
  private read(bin: number | null): void {
    const run = this.run;
    if (!run) return;
    const at = bin === null ? null : format.steps(run.first[bin] ?? 0, run.last[bin] ?? 0);
    const values = this.lines.map(({ curve, label }, index) => {
      const value = bin === null ? run.newest(curve) : (run.curves.get(curve)?.last[bin] ?? null);
      const name = this.lines.length > 1 ? el("i", { class: `key key${index}`, text: label }) : null;
      return el(
        "span",
        { class: value !== null && !Number.isFinite(value) ? "value broken" : "value" },
        name,
        this.panel.show(value),
      );
    });
    this.readout.replaceChildren(...(at === null ? [] : [el("span", { class: "at", text: `step ${at}` })]), ...values);
  }
}
