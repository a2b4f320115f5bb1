// The heat map: layers or tensors by step. Its canvas is only as large as the visible part, so that thousands of rows
// scroll smoothly.

import type { Heat } from "../../data/heat";
import { el } from "../../shared/dom";
import { color, current, hideTip, showTip } from "../../shared/theme";
import { AXIS, draw, type Frame, labelWidth, plotWidth } from "./draw";
import { legendOf } from "./legend";
import { palette, pixel } from "./palette";
import { placesOf, type Row, rowsOf, type RowOptions } from "./rows";
import { Ruler } from "./ruler";
import { ABSENT_PLACE, BROKEN_PLACE, type Coloring, shadesOf } from "./shades";
import { cellWords, type Shown, summary } from "./words";

/** The height of a row, which is enough for its name. */
const ROW = 17;
const MIN_ROWS = 4;
/** With at most this many tensors, all layers are open at first. */
const FEW = 20;

export interface HeatOptions extends Omit<RowOptions, "open"> {
  coloring: Coloring;
}

export class HeatView {
  readonly element: HTMLElement;
  readonly legend = el("div", { class: "legend" });
  private readonly canvas = el("canvas", { class: "heat-canvas", role: "img" });
  private readonly spacer = el("div", { class: "heat-spacer" });
  private readonly scroller: HTMLElement;
  private readonly empty = el("p", { class: "note heat-empty" });
  private readonly readout = el("p", { class: "heat-readout", aria: { live: "polite" } });
  private readonly ruler = new Ruler((share) => {
    this.scroller.scrollTop = share * this.rows.length * ROW - (this.scroller.clientHeight - AXIS) / 2;
  });
  private heat: Heat | null = null;
  private shown: Shown | null = null;
  private image: HTMLCanvasElement | null = null;
  private options: HeatOptions = { filter: "", grouping: "layers", coloring: "change" };
  private readonly open = new Set<string>();
  private selected: string | null = null;
  private cursor: Frame["cursor"] = null;
  private alertSteps: number[] = [];
  private alertRows: Frame["alertRows"] = new Map();
  private chosenStep: number | null = null;
  private frame = 0;
  private labels = 80;
  /** The row to centre as soon as there is a layout. */
  private toReveal = -1;

  constructor(private readonly onSelect: (row: Row | null) => void) {
    const name = "heat map: arrow keys move, Enter opens a layer or selects a tensor";
    this.scroller = el(
      "div",
      { class: "heat-scroller", role: "group", aria: { label: name } },
      this.canvas,
      this.spacer,
    );
    this.scroller.tabIndex = 0;
    const body = el("div", { class: "heat-body" }, this.scroller, this.ruler.element);
    this.element = el("div", { class: "heat" }, this.empty, body, this.readout);
    this.scroller.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.scroller.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", hideTip);
    this.canvas.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.resize()).observe(this.scroller);
  }

  /** The visible rows. */
  get rows(): Row[] {
    return this.shown?.rows ?? [];
  }

  update(heat: Heat | null, options: HeatOptions): void {
    if (heat?.kind !== this.heat?.kind || heat?.statistic !== this.heat?.statistic) this.cursor = null;
    // Few tensors fit on the screen at once: closed layers save nothing.
    if (heat && !this.heat && heat.rows <= FEW) for (const layer of heat.layers) this.open.add(layer);
    this.heat = heat;
    this.options = options;
    this.rebuild();
  }

  /** The steps in which alerts began, the selected alert's step, and the rows of ongoing alerts. */
  marks(steps: number[], chosen: number | null, rows: Frame["alertRows"]): void {
    [this.alertSteps, this.chosenStep, this.alertRows] = [steps, chosen, rows];
    this.schedule();
  }

  /** Centres a row with its layer open, and selects it at a step; returns false if it does not exist. */
  reveal(name: string, step: number | null): boolean {
    const { heat } = this;
    const tensor = heat?.names.indexOf(name) ?? -1;
    if (heat && tensor >= 0 && this.options.grouping === "layers") {
      this.open.add(heat.layers[heat.layerOf[tensor] ?? 0] ?? "");
      this.rebuild();
    }
    let index = this.rows.findIndex((row) => row.name === name);
    // Without layers, a layer is at its first tensor.
    if (index < 0 && heat) index = this.rows.findIndex((row) => heat.layers[row.layer] === name);
    if (index < 0) return false;
    this.toReveal = index;
    const column = step === null ? -1 : (heat?.last.findIndex((last) => last >= step) ?? -1);
    this.cursor = column < 0 ? null : { row: index, column };
    this.select(index);
    this.say();
    this.schedule();
    return true;
  }

  /** Also called after a change of colours. */
  rebuild(): void {
    const { heat, options } = this;
    this.shown = null;
    this.image = null;
    if (heat && heat.columns > 0 && heat.rows > 0) {
      const shades = shadesOf(heat, options.coloring);
      const rows = rowsOf(heat, { ...options, open: this.open });
      this.shown = { heat, shades, rows, places: placesOf(rows, shades, heat.columns) };
      if (rows.length > 0) this.paint(this.shown);
      this.legend.replaceChildren(...legendOf(shades));
      this.canvas.setAttribute("aria-label", summary(this.shown));
    } else {
      this.legend.replaceChildren();
      this.canvas.setAttribute("aria-label", "Heat map: no measurements yet.");
    }
    this.empty.textContent = heat ? "No tensor matches the filter." : "No measurements yet.";
    this.empty.hidden = this.rows.length > 0;
    this.scroller.style.height = `${Math.max(MIN_ROWS, this.rows.length) * ROW + AXIS}px`;
    if (this.cursor && this.cursor.row >= this.rows.length) this.cursor = null;
    this.resize();
    this.say();
  }

  /** Draws one pixel per cell; the browser scales them. */
  private paint({ heat, rows, places, shades }: Shown): void {
    const image = el("canvas");
    [image.width, image.height] = [heat.columns, rows.length];
    const context = image.getContext("2d");
    if (!context) return;
    const colors = palette(shades.coloring === "change", current() === "dark");
    [colors[ABSENT_PLACE], colors[BROKEN_PLACE]] = [pixel(color("absent")), pixel(color("broken"))];
    const data = context.createImageData(heat.columns, rows.length);
    const pixels = new Uint32Array(data.data.buffer);
    for (let index = 0; index < pixels.length; index += 1) pixels[index] = colors[places[index] ?? 0] ?? 0;
    context.putImageData(data, 0, 0);
    this.image = image;
    this.ruler.paint(places, rows.length, heat.columns, colors, shades.coloring);
  }

  private resize(): void {
    const context = this.canvas.getContext("2d");
    if (context) {
      this.labels = labelWidth(context, this.rows, this.heat?.layers ?? [], this.scroller.clientWidth);
    }
    this.schedule();
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
    const { shown, image, rows } = this;
    if (!context || width === 0) return;
    const ratio = devicePixelRatio;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== wide) this.canvas.width = wide;
    if (this.canvas.height !== high) this.canvas.height = high;
    [this.canvas.style.width, this.canvas.style.height] = [`${width}px`, `${height}px`];
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const [all, room] = [rows.length * ROW, height - AXIS];
    this.spacer.style.height = `${Math.max(0, all - room)}px`;
    if (this.toReveal >= 0) {
      this.scroller.scrollTop = (this.toReveal + 0.5) * ROW - room / 2;
      this.toReveal = -1;
    }
    const top = this.scroller.scrollTop;
    this.ruler.show(top / Math.max(1, all), room / Math.max(1, all), room);
    context.clearRect(0, 0, width, height);
    if (!shown || !image) return;
    const { labels, selected, cursor, alertSteps, alertRows, chosenStep } = this;
    const view = { image, width, height, top, rowHeight: ROW, labels };
    draw(context, { ...shown, ...view, selected, cursor, alertSteps, alertRows, chosenStep });
  }

  /** The row and the column under the pointer; a column of -1 means the names. */
  private at(event: MouseEvent): { row: number; column: number } | null {
    const { shown, scroller, labels } = this;
    if (!shown) return null;
    const box = this.canvas.getBoundingClientRect();
    const offset = event.clientY - box.top;
    const width = plotWidth({ width: scroller.clientWidth, labels });
    const row = Math.floor((offset + scroller.scrollTop) / ROW);
    const column = Math.floor(((event.clientX - box.left - labels) / width) * shown.heat.columns);
    const isOutside = row >= shown.rows.length || column >= shown.heat.columns || offset > scroller.clientHeight - AXIS;
    return isOutside ? null : { row, column: Math.max(-1, column) };
  }

  private hover(event: MouseEvent): void {
    const place = this.at(event);
    const row = place ? this.rows[place.row] : undefined;
    if (!place || !row || !this.shown) {
      hideTip();
      return;
    }
    if (place.column < 0) {
      const more = row.isLayer ? [`click to ${row.isOpen ? "close" : "open"}: ${row.members.length} tensors`] : [];
      showTip(event.clientX, event.clientY, el("b", { text: row.name }), ...more);
      return;
    }
    const words = cellWords(this.shown, place.row, place.column);
    if (!words) return;
    showTip(event.clientX, event.clientY, el("b", { text: words.name }), words.step, words.value);
    this.say(place);
  }

  private click(event: MouseEvent): void {
    const place = this.at(event);
    const row = place ? this.rows[place.row] : undefined;
    if (!place || !row) return;
    if (place.column >= 0) this.cursor = place;
    if (row.isLayer && place.column < 0) this.toggle(row);
    else this.select(place.row);
    this.say();
    this.schedule();
  }

  private toggle(row: Row): void {
    if (row.isOpen) this.open.delete(row.name);
    else this.open.add(row.name);
    this.rebuild();
  }

  select(index: number | null): void {
    const row = index === null ? null : (this.rows[index] ?? null);
    this.selected = row?.name ?? null;
    this.onSelect(row);
    this.schedule();
  }

  /** Moves the cursor, which starts at the top of the visible part, in the newest column. */
  private press(event: KeyboardEvent): void {
    const { shown, scroller } = this;
    if (!shown || shown.rows.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor((scroller.clientHeight - AXIS) / ROW) - 1);
    const columns = shown.heat.columns;
    const start = { row: Math.ceil(scroller.scrollTop / ROW), column: columns - 1 };
    const { row, column } = this.cursor ?? start;
    const isNew = this.cursor === null;
    const to = (rows: number, steps: number) => ({
      row: row + (isNew ? 0 : rows),
      column: column + (isNew ? 0 : steps),
    });
    const moves: Record<string, () => { row: number; column: number }> = {
      ArrowUp: () => to(-1, 0),
      ArrowDown: () => to(1, 0),
      ArrowLeft: () => to(0, -1),
      ArrowRight: () => to(0, 1),
      PageUp: () => to(-page, 0),
      PageDown: () => to(page, 0),
      Home: () => ({ row, column: 0 }),
      End: () => ({ row, column: columns - 1 }),
    };
    if (event.key === "Enter" || event.key === " ") this.enter();
    else {
      const move = moves[event.key];
      if (!move) return;
      const next = move();
      this.cursor = {
        row: Math.max(0, Math.min(shown.rows.length - 1, next.row)),
        column: Math.max(0, Math.min(columns - 1, next.column)),
      };
    }
    event.preventDefault();
    this.follow();
    this.say();
    this.schedule();
  }

  private enter(): void {
    const row = this.cursor ? this.rows[this.cursor.row] : undefined;
    if (!row || !this.cursor) return;
    if (row.isLayer) this.toggle(row);
    this.select(this.cursor.row);
  }

  /** Scrolls to the cursor. */
  private follow(): void {
    if (!this.cursor) return;
    const [y, room] = [this.cursor.row * ROW, this.scroller.clientHeight - AXIS];
    if (y < this.scroller.scrollTop) this.scroller.scrollTop = y;
    else if (y + ROW > this.scroller.scrollTop + room) this.scroller.scrollTop = y + ROW - room;
  }

  /** Describes the cell of the cursor or pointer, or how to select one. */
  private say(place: Frame["cursor"] = this.cursor): void {
    const words = this.shown && place ? cellWords(this.shown, place.row, place.column) : null;
    const isTree = this.options.grouping === "layers" && this.rows.some(({ isLayer }) => isLayer);
    const hint = `Point at a cell, or move with the arrow keys.${isTree ? " Click a layer to show its tensors." : ""}`;
    const text = words ? [el("b", { text: words.name }), ` · ${words.step} · ${words.value}`] : [hint];
    const said = words ? `${words.name} · ${words.step} · ${words.value}` : hint;
    // An unchanged text is not announced again.
    if (this.readout.textContent === said) return;
    this.readout.classList.toggle("muted", !words);
    this.readout.replaceChildren(...text);
  }
}
