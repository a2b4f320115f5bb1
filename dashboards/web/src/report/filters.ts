// The fields above the table of values.

import { button, el } from "../shared/dom";
import type { Columns } from "./columns";
import { DIRECTIONS, LEVELS, type Rows, stepOf } from "./data";
import { bare, type Selection } from "./selection";

/** The number of suggested modules. */
const SUGGESTED = 400;
/** The pause in typing before a search, in milliseconds. */
const REST = 120;
/** The levels, the most important first. */
const ORDER = ["error", "warning", "unmatched", "pass"] as const;

export interface Changed {
  rows: () => void;
  columns: () => void;
}

export class Filters {
  readonly element = el("form", { id: "filters", role: "search", aria: { label: "filter the values" } });
  readonly search = field("q", "words in any cell  ( / )", "search");
  private readonly module = field("module", "starts with", "text");
  private readonly selects: Record<"rank" | "step" | "dir", HTMLSelectElement>;
  private readonly levels = el("fieldset", { id: "levels" }, el("legend", { text: "Level" }));
  private readonly chooser = el("div", { id: "chooser", role: "group", aria: { label: "columns" } });
  private waiting = 0;

  constructor(
    private readonly rows: Rows,
    private readonly columns: Columns,
    private readonly selection: Selection,
    private readonly changed: Changed,
  ) {
    const { tables } = rows;
    this.selects = {
      rank: this.choice("rank", [...new Set(tables.map(({ rank }) => String(rank)))]),
      step: this.choice("step", [...new Set(tables.map(stepOf))]),
      dir: this.choice("dir", [...DIRECTIONS]),
    };
    const { rank, step, dir } = this.selects;
    const modules = el("datalist", { id: "modules" }, ...suggestions(rows));
    this.module.setAttribute("list", "modules");
    const search = el("label", { class: "search" }, "Search ", this.search);
    const columnsBox = el("details", { id: "columns" }, el("summary", { text: "Columns" }), this.chooser);
    this.element.append(
      search,
      this.levels,
      labelled("Rank ", rank),
      labelled("Step ", step),
      labelled("Direction ", dir),
      el("label", {}, "Module ", this.module),
      modules,
      columnsBox,
    );
    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.typed(this.search, (text) => (selection.q = text));
    this.typed(this.module, (text) => (selection.module = text));
  }

  /** Shows the state of the selection. */
  show(): void {
    const { selection } = this;
    this.search.value = selection.q;
    this.module.value = selection.module;
    for (const key of ["rank", "step", "dir"] as const) this.selects[key].value = selection[key];
    const levels = ORDER.map((name) => {
      const level = LEVELS.indexOf(name);
      const count = (this.rows.counts[level] ?? 0).toLocaleString("en");
      const label = el("span", { class: `level ${name}`, text: `${name} ${count}` });
      return checkbox(label, selection.levels.has(level), (isOn) => {
        toggle(selection.levels, level, isOn);
        this.changed.rows();
      });
    });
    this.levels.replaceChildren(...this.levels.querySelectorAll("legend"), ...levels);
    this.chooser.replaceChildren(
      ...this.columns.all.map(({ key }) =>
        checkbox(key, selection.columns.has(key), (isOn) => {
          toggle(selection.columns, key, isOn);
          this.changed.columns();
        }),
      ),
    );
  }

  private typed(input: HTMLInputElement, take: (text: string) => void): void {
    input.addEventListener("input", () => {
      window.clearTimeout(this.waiting);
      this.waiting = window.setTimeout(() => {
        take(input.value.trim());
        this.changed.rows();
      }, REST);
    });
  }

  private choice(key: "rank" | "step" | "dir", values: string[]): HTMLSelectElement {
    const every = el("option", { text: "all" });
    every.value = "";
    const select = el("select", { id: key }, every, ...values.map((text) => el("option", { text })));
    select.addEventListener("change", () => {
      this.selection[key] = select.value;
      this.changed.rows();
    });
    return select;
  }
}

/** The line between fields and table: the number of rows, and buttons to go from error to error. */
export class ResultBar {
  readonly element: HTMLElement;
  private readonly count = el("output", { id: "count", aria: { live: "polite" } });
  private readonly ways: HTMLButtonElement[];

  constructor(go: (direction: -1 | 0 | 1) => void, clear: () => void) {
    const way = (id: string, text: string, title: string, direction: -1 | 0 | 1) => {
      const element = button(text, title, () => go(direction), "");
      element.id = id;
      return element;
    };
    this.ways = [
      way("first", "First error", "the first row with an error", 0),
      way("previous", "Previous error", "key p", -1),
      way("next", "Next error", "key n", 1),
    ];
    const all = button("Clear filters", "show all rows", clear, "");
    all.id = "clear";
    this.element = el("div", { class: "bar-line" }, this.count, el("span", { class: "buttons" }, ...this.ways, all));
  }

  show(rows: number, total: number, errors: number): void {
    const [shown, all, wrong] = [rows, total, errors].map((count) => count.toLocaleString("en"));
    this.count.textContent = `${shown} of ${all} rows, ${wrong} ${errors === 1 ? "error" : "errors"}`;
    for (const way of this.ways) way.disabled = errors === 0;
  }
}

function field(id: string, placeholder: string, type: string): HTMLInputElement {
  const input = el("input", { id });
  Object.assign(input, { type, placeholder, autocomplete: "off", spellcheck: false });
  return input;
}

/** A choice with only one value is hidden. */
function labelled(text: string, select: HTMLSelectElement): HTMLLabelElement {
  const label = el("label", {}, text, select);
  label.hidden = select.options.length < 3;
  return label;
}

function checkbox(label: Node | string, isOn: boolean, changed: (isOn: boolean) => void): HTMLLabelElement {
  const box = el("input");
  box.type = "checkbox";
  box.checked = isOn;
  box.addEventListener("change", () => changed(box.checked));
  return el("label", {}, box, label);
}

function toggle<Item>(set: Set<Item>, item: Item, isOn: boolean): void {
  if (isOn) set.add(item);
  else set.delete(item);
}

function suggestions(rows: Rows): HTMLOptionElement[] {
  const modules = new Set<string>();
  for (let row = 0; row < rows.total && modules.size < SUGGESTED; row += 1) {
    const module = rows.module(row);
    if (module) modules.add(bare(module.replace(/\.(forward|backward|parameters_grad)\.\d+$/, "")));
  }
  return [...modules].map((module) => {
    const option = el("option");
    option.value = module;
    return option;
  });
}
