// A chart: the curves of a panel over the steps, and its text alternative.

import uPlot from "uplot";
import type { Steps, Values } from "../data/run";
import { button, el } from "../shared/dom";
import * as format from "../shared/format";
import { color } from "../shared/theme";
import { chartSummary } from "./chart_words";
import { type Mark, marksPlugin } from "./marks";

export interface Line {
  curve: string;
  label: string;
}

export interface Panel {
  title: string;
  lines: Line[];
  /** Whether the scale is logarithmic at first. */
  log: boolean;
  show: (value: number | null, digits?: number) => string;
}

/** The spread above which a linear scale would show only the largest value. */
const WIDE = 30;
/** Steps are whole numbers. */
const WHOLE = Array.from({ length: 27 }, (_, index) => [1, 2, 5][index % 3]! * 10 ** Math.floor(index / 3));

export class Chart {
  readonly element: HTMLElement;
  readonly lines: Line[];
  private readonly readout = el("span", { class: "readout" });
  private readonly scale: HTMLButtonElement;
  private readonly holder = el("div", { class: "plot", role: "group" });
  private plot: uPlot | null = null;
  private run: Steps | null = null;
  private log: boolean;
  /** `false` until the reader chooses a scale: then the values decide. */
  private isChosen = false;
  private isRanged = false;

  constructor(
    private readonly panel: Panel,
    private readonly marks: () => Mark[],
  ) {
    this.lines = panel.lines;
    this.log = panel.log;
    this.scale = button(this.scaleName(), "Toggle linear and logarithmic", () => {
      this.isChosen = true;
      this.setScale(!this.log);
    });
    const title = el("h3", { text: panel.title, title: panel.title });
    this.element = el("figure", { class: "panel" }, el("figcaption", {}, title, this.scale, this.readout), this.holder);
    this.holder.setAttribute("aria-label", `${panel.title}: arrow keys move from step to step`);
    this.holder.tabIndex = 0;
    this.holder.addEventListener("keydown", (event) => this.press(event));
    // Announced when keys move, not when the pointer passes.
    this.holder.addEventListener("focus", () => this.readout.setAttribute("aria-live", "polite"));
    this.holder.addEventListener("blur", () => this.readout.removeAttribute("aria-live"));
  }

  /** Moves the line that all curves share. */
  private press(event: KeyboardEvent): void {
    const { plot, run } = this;
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -1e9, End: 1e9 }[event.key];
    if (!plot || !run || by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const newest = run.last.length - 1;
    const bin = Math.max(0, Math.min(newest, (plot.cursor.idx ?? newest) + by));
    plot.setCursor({ left: plot.valToPos(run.last[bin] ?? 0, "x"), top: plot.over.clientHeight / 2 }, true);
  }

  private scaleName(): string {
    return this.log ? "log" : "lin";
  }

  private setScale(log: boolean): void {
    this.log = log;
    this.scale.textContent = this.scaleName();
    this.rebuild();
  }

  /** Whether a spike would flatten all other values. */
  private isWide(run: Steps): boolean {
    const sorted = Float64Array.from(this.finite(run, "high")).sort();
    const [middle, most] = [sorted[sorted.length >> 1] ?? 0, sorted.at(-1) ?? 0];
    return most > WIDE * middle && this.finite(run, "low").every((value) => value > 0);
  }

  /** The ends of the bins, or the values if each bin holds one step. */
  private finite(run: Steps, end: "low" | "high"): number[] {
    const values = this.lines.flatMap(({ curve }) => {
      const found = run.curves.get(curve);
      return found ? (found[end].length > 0 ? found[end] : found.last) : [];
    });
    return values.filter((value): value is number => value !== null && Number.isFinite(value));
  }

  update(run: Steps): void {
    this.run = run;
    const isRanged = run.width > 1;
    const isOther = !this.plot || isRanged !== this.isRanged;
    this.isRanged = isRanged;
    // A new chart has the new values already.
    if (!this.isChosen && !this.log && this.isWide(run)) {
      this.setScale(true);
    } else if (!this.plot || isOther) {
      this.rebuild();
    } else {
      this.setData(this.plot, run);
    }
    this.read(this.plot?.cursor.idx ?? null);
    this.describe();
  }

  /** The text alternative of the canvas. */
  private describe(): void {
    const { plot, run, panel } = this;
    if (plot && run) plot.ctx.canvas.role = "img";
    if (plot && run) plot.ctx.canvas.ariaLabel = chartSummary(run, panel, this.marks());
  }

  /** Sets new values; the steps that the reader selected stay. */
  private setData(plot: uPlot, run: Steps): void {
    const chosen = chosenSteps(plot);
    plot.batch(() => {
      plot.setData(this.data(run), true);
      if (chosen) plot.setScale("x", chosen);
    });
  }

  /** Redraws the marks only. */
  mark(): void {
    this.plot?.redraw(false);
    this.describe();
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

  /** The range of bins that hold several steps, and the newest value of each line. */
  private data(run: Steps): uPlot.AlignedData {
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

  /** A non-finite value has no place; `marks` shows it. On a logarithmic scale, 0 is drawn below all others. */
  private drawable(value: number | null, floor: number): number | null {
    if (value === null || !Number.isFinite(value)) return null;
    return this.log && value <= 0 ? (Number.isFinite(floor) ? floor : null) : value;
  }

  private rebuild(): void {
    if (!this.run) return;
    const chosen = this.plot && chosenSteps(this.plot);
    this.plot?.destroy();
    const ranged = this.isRanged;
    const colors = [color("accent"), color("second")];
    const series: uPlot.Series[] = [{}];
    const bands: uPlot.Band[] = [];
    this.lines.forEach((_, index) => {
      const stroke = colors[index] ?? color("text");
      if (ranged) {
        const high = series.length;
        // A bin may be narrower than a pixel: a spike of one step must show as a line, not as an area.
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
      axes: [{ ...this.axis(28, (value) => format.integer(value)), incrs: WHOLE }, this.axis(58, this.panel.show)],
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
    if (chosen) this.plot.setScale("x", chosen);
  }

  private axis(size: number, show: (value: number, digits: number) => string): uPlot.Axis {
    return {
      size,
      font: `11px ${color("font")}`,
      stroke: color("muted"),
      grid: { stroke: color("grid"), width: 1 },
      ticks: { show: false },
      gap: 6,
      values: (_, ticks) => format.labels(ticks, show),
    };
  }

  /** The bins with a non-finite value. */
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

  /** Shows the values under the pointer, or the newest. */
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

/** The selected steps, if the reader zoomed in. */
function chosenSteps(plot: uPlot): { min: number; max: number } | null {
  const steps = plot.data[0];
  const { min, max } = plot.scales.x ?? {};
  const [first, last] = [steps[0], steps.at(-1)];
  if (min == null || max == null || first === undefined || last === undefined) return null;
  return min > first || max < last ? { min, max } : null;
}
