// A table with few rows: a head, and cells that are texts or elements.

import { el } from "./dom";

export type Cell = Node | string;

/** A column: its title, and its kind; numbers are right-aligned. */
export type Column = [title: string, kind: "text" | "number"];

/** The table in a box that scrolls horizontally; `rowClass` marks rows. */
export function table(head: Column[], rows: Cell[][], rowClass?: (row: Cell[]) => string): HTMLElement {
  const cells = (row: Cell[]) => row.map((cell, index) => el("td", { class: head[index]?.[1] ?? "text" }, cell));
  return el(
    "div",
    { class: "table" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...head.map(([name, kind]) => el("th", { class: kind, text: name })))),
      el("tbody", {}, ...rows.map((row) => el("tr", { class: rowClass?.(row) ?? "" }, ...cells(row)))),
    ),
  );
}
