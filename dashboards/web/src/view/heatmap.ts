// The heat map: tensors by step, drawn on a canvas as large as what is seen of it, so that thousands of rows scroll smoothly.

import { ABSENT, type Heat } from "../data/heat";
import { el } from "../shared/dom";
import * as format from "../shared/format";
import { type Grouping, gridOf } from "./grid";
import { css, palette, pixel } from "./palette";
import { type Coloring, type Grid, type Scale, scaleOf } from "./scale";
import { color, current, hideTip, showTip } from "../shared/theme";

const MAX_LABELS = 260;
const AXIS = 22;
const MIN_ROW = 3;
const MAX_ROW = 18;
/** From this height on a row has its name beside it. */
const NAMED_ROW = 12;

export interface HeatOptions {
  filter: string;
  grouping: Grouping;
  coloring: Coloring;
}

export class HeatView {
  readonly element: HTMLElement;
  readonly legend = el("div", { class: "legend" });
  private readonly canvas = el("canvas", { class: "heat-canvas" });
  private readonly spacer = el("div", { class: "heat-spacer" });
  private readonly scroller: HTMLElement;
  private heat: Heat | null = null;
  private grid: Grid | null = null;
  private scale: Scale | null = null;
  private image: HTMLCanvasElement | null = null;
  private options: HeatOptions = { filter: "", grouping: "tensors", coloring: "value" };
  private alertSteps: number[] = [];
  private chosenStep: number | null = null;
  private frame = 0;
  /** Room for the names, in CSS pixels. */
  private labels = 80;

  constructor() {
    this.scroller = el("div", { class: "heat-scroller", aria: { label: "heat map" } }, this.canvas, this.spacer);
    this.scroller.tabIndex = 0;
    this.element = el("div", { class: "heat" }, this.scroller);
    this.scroller.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", hideTip);
    new ResizeObserver(() => this.schedule()).observe(this.scroller);
  }

  /** How many rows are shown. */
  get shown(): number {
    return this.grid?.names.length ?? 0;
  }

  update(heat: Heat | null, options: HeatOptions): void {
    this.heat = heat;
    this.options = options;
    this.rebuild();
  }

  marks(steps: number[], chosen: number | null): void {
    this.alertSteps = steps;
    this.chosenStep = chosen;
    this.schedule();
  }

  /** After a change of colours too. */
  rebuild(): void {
    const { heat, options } = this;
    this.grid = heat ? gridOf(heat, options.filter, options.grouping) : null;
    this.scale = this.grid && heat ? scaleOf(this.grid, options.coloring, heat.statistic === "zeros") : null;
    // Few rows need no more room than that; the style says what many may have.
    this.scroller.style.height = `${Math.max(6, this.shown) * MAX_ROW + AXIS}px`;
    this.paint();
    this.drawLegend();
    this.schedule();
  }

  /** One pixel per cell; the browser makes them larger. */
  private paint(): void {
    const { grid, scale } = this;
    this.image = null;
    if (!grid || !scale || grid.columns === 0 || grid.names.length === 0) return;
    const image = el("canvas");
    [image.width, image.height] = [grid.columns, grid.names.length];
    const context = image.getContext("2d");
    if (!context) return;
    const colors = palette(this.options.coloring === "change", current() === "dark");
    const [broken, absent] = [pixel(color("broken")), pixel(color("absent"))];
    const data = context.createImageData(grid.columns, grid.names.length);
    const pixels = new Uint32Array(data.data.buffer);
    for (let index = 0; index < pixels.length; index += 1) {
      const value = grid.values[index] ?? ABSENT;
      const place = () => colors[scale.place(value, Math.floor(index / grid.columns))] ?? absent;
      pixels[index] = value === ABSENT ? absent : Number.isFinite(value) ? place() : broken;
    }
    context.putImageData(data, 0, 0);
    this.image = image;
  }

  private rowHeight(): number {
    const room = this.scroller.clientHeight - AXIS;
    return Math.max(MIN_ROW, Math.min(MAX_ROW, room / Math.max(1, this.shown)));
  }

  private schedule(): void {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    const { clientWidth: width, clientHeight: height } = this.scroller;
    const context = this.canvas.getContext("2d");
    if (!context || width === 0) return;
    const ratio = devicePixelRatio;
    [this.canvas.width, this.canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    [this.canvas.style.width, this.canvas.style.height] = [`${width}px`, `${height}px`];
    const row = this.rowHeight();
    this.spacer.style.height = `${Math.max(0, row * this.shown + AXIS - height)}px`;
    context.scale(ratio, ratio);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${color("font")}`;
    context.textBaseline = "middle";
    if (!this.image || !this.grid) {
      context.fillStyle = color("muted");
      context.fillText(this.heat ? "No tensor matches the filter." : "Nothing was measured yet.", 12, 20);
      return;
    }
    this.labels = labelWidth(context, row >= NAMED_ROW ? this.grid.names : this.grid.groups.map(({ name }) => name));
    const visible = Math.min(this.shown * row, height - AXIS);
    context.imageSmoothingEnabled = false;
    const from = this.scroller.scrollTop / row;
    context.drawImage(this.image, 0, from, this.grid.columns, visible / row, this.labels, 0, this.plotWidth(), visible);
    this.drawNames(context, row, visible);
    this.drawSteps(context, visible);
  }

  private plotWidth(): number {
    return Math.max(50, this.scroller.clientWidth - this.labels - 8);
  }

  private drawNames(context: CanvasRenderingContext2D, row: number, visible: number): void {
    const { grid } = this;
    if (!grid) return;
    const top = this.scroller.scrollTop;
    const first = Math.floor(top / row);
    context.textAlign = "right";
    if (row >= NAMED_ROW) {
      context.fillStyle = color("text");
      for (let index = first; index < grid.names.length && index * row - top < visible; index += 1) {
        context.fillText(
          shortened(context, grid.names[index] ?? "", this.labels),
          this.labels - 8,
          (index + 0.5) * row - top,
        );
      }
      return;
    }
    let free = 0;
    for (const [index, group] of grid.groups.entries()) {
      const end = (grid.groups[index + 1]?.row ?? grid.names.length) * row - top;
      const begin = group.row * row - top;
      if (end <= 0 || begin > visible) continue;
      context.fillStyle = color("line");
      context.fillRect(
        this.labels - 4,
        Math.max(0, begin),
        2,
        Math.max(1, Math.min(end, visible) - Math.max(0, begin) - 1),
      );
      const middle = (Math.max(0, begin) + Math.min(end, visible)) / 2;
      if (middle - 6 < free) continue;
      context.fillStyle = color("muted");
      context.fillText(shortened(context, group.name, this.labels), this.labels - 8, middle);
      free = middle + 6;
    }
  }

  private drawSteps(context: CanvasRenderingContext2D, visible: number): void {
    const { heat } = this;
    if (!heat) return;
    const width = this.plotWidth();
    const cell = width / heat.columns;
    context.fillStyle = color("muted");
    context.textAlign = "center";
    const labels = Math.max(2, Math.min(heat.columns, Math.floor(width / 110)));
    for (let index = 0; index < labels; index += 1) {
      const column = Math.round((index * (heat.columns - 1)) / Math.max(1, labels - 1));
      const x = this.labels + (column + 0.5) * cell;
      const text = format.integer(heat.first[column] ?? 0);
      const half = context.measureText(text).width / 2;
      context.fillText(
        text,
        Math.max(this.labels + half, Math.min(this.labels + width - half, x)),
        visible + AXIS / 2 + 1,
      );
    }
    for (const step of this.alertSteps) {
      const column = heat.last.findIndex((last) => last >= step);
      if (column < 0) continue;
      const x = this.labels + (column + 0.5) * cell;
      const isChosen = step === this.chosenStep;
      context.fillStyle = color(isChosen ? "critical" : "warning");
      context.beginPath();
      context.moveTo(x - 4, visible + 7);
      context.lineTo(x + 4, visible + 7);
      context.lineTo(x, visible + 1);
      context.fill();
      if (isChosen) {
        context.globalAlpha = 0.8;
        context.fillRect(x - cell / 2 - 1, 0, 1, visible);
        context.fillRect(x + cell / 2, 0, 1, visible);
        context.globalAlpha = 1;
      }
    }
  }

  private drawLegend(): void {
    const { scale, heat, options } = this;
    if (!scale || !heat) {
      this.legend.replaceChildren();
      return;
    }
    const colors = palette(options.coloring === "change", current() === "dark");
    const bar = el("canvas", { class: "legend-bar" });
    [bar.width, bar.height] = [256, 1];
    const context = bar.getContext("2d");
    colors.forEach((value, index) => {
      if (!context) return;
      context.fillStyle = css(value);
      context.fillRect(index, 0, 1, 1);
    });
    const isChange = options.coloring === "change";
    const ends = isChange ? ["÷10", "×10"] : [format.number(scale.low), format.number(scale.high)];
    const meaning = isChange ? "against the row's median" : scale.isLog ? "logarithmic" : "share";
    this.legend.replaceChildren(
      el("span", { text: ends[0] ?? "" }),
      bar,
      el("span", { text: ends[1] ?? "" }),
      el("span", { class: "muted", text: meaning }),
      el("span", { class: "chip broken-chip" }),
      el("span", { text: "NaN, Inf" }),
      el("span", { class: "chip absent-chip" }),
      el("span", { text: "not measured" }),
    );
  }

  private hover(event: MouseEvent): void {
    const { heat, grid, scale } = this;
    if (!heat || !grid || !scale) return;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left - this.labels) / this.plotWidth()) * heat.columns);
    const offset = event.clientY - box.top;
    const row = Math.floor((offset + this.scroller.scrollTop) / this.rowHeight());
    const name = grid.names[row];
    if (name === undefined || column >= heat.columns || offset > this.scroller.clientHeight - AXIS) {
      hideTip();
      return;
    }
    if (column < 0) {
      showTip(event.clientX, event.clientY, name);
      return;
    }
    const value = grid.values[row * grid.columns + column] ?? ABSENT;
    const usual = scale.usual(row);
    const change =
      this.options.coloring === "change" && value >= 0 ? `  ${format.factor(value, usual)} of the median` : "";
    const said = value === ABSENT ? "not measured" : `${heat.statistic} ${format.number(value)}${change}`;
    showTip(
      event.clientX,
      event.clientY,
      el("b", { text: name }),
      `step ${format.steps(heat.first[column] ?? 0, heat.last[column] ?? 0)}`,
      said,
    );
  }
}

/** As wide as the longest of the names, within bounds. */
function labelWidth(context: CanvasRenderingContext2D, names: string[]): number {
  const longest = names.reduce((longest, name) => (name.length > longest.length ? name : longest), "");
  return Math.max(60, Math.min(MAX_LABELS, Math.ceil(context.measureText(longest).width) + 20));
}

/** The end of a name says which tensor it is. */
function shortened(context: CanvasRenderingContext2D, name: string, room: number): string {
  if (context.measureText(name).width <= room - 16) return name;
  let [low, high] = [0, name.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (context.measureText(`…${name.slice(middle)}`).width <= room - 16) high = middle;
    else low = middle + 1;
  }
  return `…${name.slice(low)}`;
}
