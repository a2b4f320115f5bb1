// An overview of all rows of a heat map: a strip as high as the map, which scrolls it.

import { el } from "../../shared/dom";
import { ABSENT_PLACE, type Coloring, weightOf } from "./shades";

/** The number of columns of the strip, which roughly show the steps. */
const COLUMNS = 22;
const MOST_HEIGHT = 2000;

export class Ruler {
  readonly element: HTMLElement;
  private readonly canvas = el("canvas", { class: "ruler-map", role: "presentation", aria: { hidden: "true" } });
  private readonly view = el("div", { class: "ruler-view" });

  /** `scrollTo` is called with the share of all rows to centre. */
  constructor(scrollTo: (share: number) => void) {
    this.element = el("div", { class: "ruler", title: "all rows: click or drag to scroll" }, this.canvas, this.view);
    const go = (event: PointerEvent) => {
      const box = this.element.getBoundingClientRect();
      scrollTo((event.clientY - box.top) / Math.max(1, box.height));
    };
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      go(event);
    });
    this.element.addEventListener("pointermove", (event) => {
      if (event.buttons > 0) go(event);
    });
  }

  /** Draws all rows; the most conspicuous of the rows that share a pixel is visible. */
  paint(places: Uint8Array, rows: number, columns: number, colors: Uint32Array, coloring: Coloring): void {
    const [width, height] = [Math.min(COLUMNS, columns), Math.min(rows, MOST_HEIGHT)];
    if (width === 0 || height === 0) return;
    const shown = new Uint8Array(width * height);
    const weights = Float32Array.from({ length: 256 }, (_, place) => weightOf(place, coloring));
    for (let row = 0; row < rows; row += 1) {
      const start = Math.floor((row * height) / rows) * width;
      for (let column = 0; column < columns; column += 1) {
        const index = start + Math.floor((column * width) / columns);
        const place = places[row * columns + column] ?? ABSENT_PLACE;
        if ((weights[place] ?? -1) > (weights[shown[index] ?? 0] ?? -1)) shown[index] = place;
      }
    }
    [this.canvas.width, this.canvas.height] = [width, height];
    const context = this.canvas.getContext("2d");
    const image = context?.createImageData(width, height);
    if (!context || !image) return;
    new Uint32Array(image.data.buffer).set(Uint32Array.from(shown, (place) => colors[place] ?? 0));
    context.putImageData(image, 0, 0);
  }

  /** Marks the visible part, as shares of the whole; hidden if everything is visible. */
  show(top: number, part: number, height: number): void {
    this.element.hidden = part >= 1;
    this.element.style.height = `${height}px`;
    this.view.style.top = `${100 * top}%`;
    this.view.style.height = `${100 * part}%`;
  }
}
