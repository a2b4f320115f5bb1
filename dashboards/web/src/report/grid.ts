// The table of values: only visible rows are in the document.

import { clickable, el } from "../shared/dom";
import type { Column } from "./columns";
import type { Rows } from "./data";
import type { Selection } from "./selection";

/** The height of a row in pixels, as in the style. */
const ROW = 28;
/** The number of rows drawn above and below the visible ones. */
const BEYOND = 12;
/** The longest text of a cell; the details of the row contain all of it. */
const CELL = 300;
const TITLE = 2000;
/** The number of rows of a page. */
const PAGE = 15;

export class RowGrid {
  readonly element = el("div", { id: "view", role: "region", aria: { label: "values; arrow keys select a row" } });
  shown = new Int32Array(0);
  private readonly head = el("thead");
  private readonly body = el("tbody");
  private readonly table = el("table", { id: "rows", role: "grid", aria: { label: "values" } }, this.head, this.body);
  private isDue = false;

  constructor(
    private readonly rows: Rows,
    private readonly columns: Column[],
    private readonly selection: Selection,
    private readonly act: { sort: (key: string) => void; choose: (row: number) => void },
  ) {
    this.element.tabIndex = 0;
    this.element.append(this.table);
    this.element.addEventListener("scroll", () => this.soon());
    this.body.addEventListener("click", ({ target }) => {
      const line = target instanceof Element ? target.closest<HTMLElement>("tr[data-row]") : null;
      if (line) this.act.choose(Number(line.dataset.row));
    });
    this.element.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE, PageUp: -PAGE }[event.key];
      if (!by || event.target !== this.element) return;
      event.preventDefault();
      this.move(by);
    });
    window.addEventListener("resize", () => this.drawRows());
  }

  /** Shows other rows, from the first on. */
  show(shown: Int32Array<ArrayBuffer>): void {
    this.shown = shown;
    this.table.setAttribute("aria-rowcount", String(shown.length + 1));
    this.drawHead();
    this.element.scrollTop = 0;
    this.drawRows();
  }

  /** Scrolls to a row, if it is one of those shown. */
  scrollTo(row: number): void {
    const at = this.shown.indexOf(row);
    const { element } = this;
    const top = at * ROW;
    if (at < 0 || (top >= element.scrollTop && top + 3 * ROW <= element.scrollTop + element.clientHeight)) return;
    element.scrollTop = Math.max(0, top - element.clientHeight / 3);
  }

  move(by: number): void {
    const at = Math.min(this.shown.length - 1, Math.max(0, this.shown.indexOf(this.selection.row) + by));
    const row = this.shown[at];
    if (row === undefined) return;
    this.scrollTo(row);
    this.act.choose(row);
  }

  drawHead(): void {
    const chosen = this.chosen();
    this.table.style.width = `${chosen.reduce((width, column) => width + column.width, 0)}px`;
    this.head.replaceChildren(el("tr", {}, ...chosen.map((column) => this.title(column))));
  }

  drawRows(): void {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - BEYOND);
    const last = Math.min(this.shown.length, Math.ceil((scrollTop + clientHeight) / ROW) + BEYOND);
    const chosen = this.chosen();
    const lines = [gap(first, chosen.length)];
    this.shown.subarray(first, last).forEach((row, index) => lines.push(this.line(row, first + index, chosen)));
    lines.push(gap(this.shown.length - last, chosen.length));
    this.body.replaceChildren(...lines);
  }

  private chosen(): Column[] {
    return this.columns.filter(({ key }) => this.selection.columns.has(key));
  }

  private title({ key, width }: Column): HTMLElement {
    const { sort, down } = this.selection;
    const [arrow, order] = sort !== key ? ["", "none"] : down ? [" ▼", "descending"] : [" ▲", "ascending"];
    const button = clickable({ title: `sort by ${key}`, text: key + arrow }, () => {
      const at = [...(title.parentElement?.children ?? [])].indexOf(title);
      this.act.sort(key);
      this.head.rows[0]?.cells[at]?.querySelector("button")?.focus();
    });
    const title = el("th", { aria: { sort: order } }, button);
    title.scope = "col";
    title.style.width = `${width}px`;
    return title;
  }

  private line(row: number, at: number, chosen: Column[]): HTMLTableRowElement {
    const cells = chosen.map(({ key, of }) => {
      const text = key === "Err_message" ? this.rows.notes(row).join("; ") : of(row);
      const shown = readable(text);
      const cell = el("td", { text: shown.length > CELL ? `${shown.slice(0, CELL)}…` : shown });
      if (key === "Level" || key === "Result") cell.className = `level ${text}`;
      else if (text.length > 14) cell.title = text.slice(0, TITLE);
      return cell;
    });
    const isChosen = String(row === this.selection.row);
    return el("tr", { data: { row: String(row) }, aria: { rowindex: String(at + 2), selected: isChosen } }, ...cells);
  }

  private soon(): void {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.drawRows();
    });
  }
}

/** A number with a readable number of digits; the title has all of them. */
function readable(text: string): string {
  const [, number, unit] = /^(-?\d+\.\d{6,}(?:e[-+]?\d+)?)(%?)$/.exec(text) ?? [];
  return number === undefined ? text : `${Number(Number(number).toPrecision(6))}${unit}`;
}

/** The space of rows outside the view. */
function gap(rows: number, columns: number): HTMLTableRowElement {
  const cell = el("td");
  cell.colSpan = columns;
  const line = el("tr", { class: "gap", aria: { hidden: "true" } }, cell);
  line.style.height = `${rows * ROW}px`;
  return line;
}
