// The legend of a heat map's colours.

import { el } from "../../shared/dom";
import * as format from "../../shared/format";
import { current } from "../../shared/theme";
import { css, palette } from "./palette";
import { MOST_CHANGE, type Shades } from "./shades";

export function legendOf(shades: Shades): HTMLElement[] {
  const isChange = shades.coloring === "change";
  const bar = el("canvas", { class: "legend-bar", role: "presentation", aria: { hidden: "true" } });
  [bar.width, bar.height] = [256, 1];
  const context = bar.getContext("2d");
  palette(isChange, current() === "dark").forEach((value, index) => {
    if (!context) return;
    context.fillStyle = css(value);
    context.fillRect(index, 0, 1, 1);
  });
  const ends = isChange
    ? [`÷${MOST_CHANGE}`, `×${MOST_CHANGE}`]
    : [format.number(shades.low), format.number(shades.high)];
  const meaning = isChange ? "of its usual value (the row's median)" : shades.isLog ? "logarithmic" : "share";
  const chip = (kind: string, text: string) =>
    el("span", { class: "legend-entry" }, el("span", { class: `chip ${kind}-chip` }), text);
  return [
    el("span", { text: ends[0] ?? "" }),
    bar,
    el("span", { text: ends[1] ?? "" }),
    el("span", { class: "muted", text: meaning }),
    chip("broken", "NaN, Inf"),
    chip("absent", "not measured"),
  ];
}
