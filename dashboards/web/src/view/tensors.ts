// The section of the tensors: the selected quantity, its heat map, and the curve of a row.

import type { HeatMap, KindDocument } from "../data/contract";
import { Heat } from "../data/heat";
import type { Run } from "../data/run";
import type { Source } from "../data/source";
import type { Target } from "../data/target";
import { el, select, setOptions } from "../shared/dom";
import * as format from "../shared/format";
import { goTo } from "../shared/keys";
import type { Frame } from "./heat/draw";
import type { Grouping, Row } from "./heat/rows";
import type { Coloring } from "./heat/shades";
import { HeatView } from "./heat/view";
import type { Mark } from "./marks";
import { RowPanel } from "./row_panel";

/** The interval of updates: a heat map changes with every step. */
const HEAT_MS = 1000;
/** The number of cached heat maps. */
const KEPT = 6;
/** The kinds to show first, if they were measured. */
const FIRST_KINDS = ["grad_reduced", "grad_unreduced", "update_ratio", "param_updated", "actv"];

export class Tensors {
  readonly element: HTMLElement;
  readonly options = { filter: "", grouping: "layers" as Grouping, coloring: "change" as Coloring };
  private run: Run | null = null;
  private heat: Heat | null = null;
  private readonly kept = new Map<string, Heat>();
  private isAsking = false;
  private selected: Row | null = null;
  private readonly panel = new RowPanel();
  private readonly view = new HeatView((row) => this.select(row));
  private readonly kind = select("kind of measurement", () => this.chooseKind());
  private readonly statistic = select("statistic", () => void this.ask(true));
  private readonly grouping = select("rows", (value) => this.group(value as Grouping));
  private readonly coloring = select("colours", (value) => this.color(value as Coloring));
  private readonly filter = el("input", { class: "filter", aria: { label: "filter tensors by name" } });
  private readonly note = el("span", { class: "muted" });

  /** `onFilter` is called when the filter changed. */
  constructor(
    private readonly source: Source,
    private readonly onFilter: () => void,
  ) {
    this.filter.type = "search";
    this.filter.placeholder = "filter tensors  /";
    this.filter.addEventListener("input", () => this.applyFilter());
    setOptions(
      this.grouping,
      options(["layers", "tensors"], (name) => `by ${name.slice(0, -1)}`),
    );
    setOptions(
      this.coloring,
      options(["change", "value"], (name) => `colour: ${name}`),
    );
    const head = el(
      "div",
      { class: "section-head" },
      el("h2", { text: "Tensors by step" }),
      this.kind,
      this.statistic,
      this.grouping,
      this.coloring,
      this.filter,
      this.note,
      this.view.legend,
    );
    const body = el("div", { class: "heat-and-row" }, this.view.element, this.panel.element);
    this.element = el("section", { class: "heat-section" }, head, body);
    window.setInterval(() => void this.ask(false), HEAT_MS);
  }

  /** Starts with another run, or with all data again. */
  begin(run: Run): void {
    this.run = run;
    this.heat = null;
    this.kept.clear();
    this.update(run);
    this.show();
    void this.ask(true);
  }

  update(run: Run): void {
    const kinds = this.mapped(run).map(({ name }) => name);
    const rank = (name: string) => (FIRST_KINDS.indexOf(name) + FIRST_KINDS.length + 1) % (FIRST_KINDS.length + 1);
    kinds.sort((a, b) => rank(a) - rank(b));
    setOptions(this.kind, options(kinds, format.words));
    this.setStatistics();
  }

  /** The kinds that have heat maps, with the statistics that have one. */
  mapped({ tables }: Run): KindDocument[] {
    const kinds = tables.kinds.map((kind) => ({
      ...kind,
      statistics: kind.statistics.filter((statistic) => this.source.has(kind.name, statistic)),
    }));
    return kinds.filter(({ statistics }) => statistics.length > 0);
  }

  mark(marks: Mark[], chosen: number | null, rows: Frame["alertRows"]): void {
    this.view.marks(
      marks.map(({ step }) => step),
      chosen,
      rows,
    );
    this.panel.mark(marks);
  }

  redraw(): void {
    this.view.rebuild();
    this.panel.redraw();
  }

  /** Shows a row at a step, changing the selection as needed; returns false if the row does not exist. */
  async goTo(target: Target, step: number | null): Promise<boolean> {
    const { run } = this;
    if (!run) return false;
    const isOther = target.kind !== null && target.kind !== this.kind.value;
    if (target.kind !== null) {
      this.kind.value = target.kind;
      this.setStatistics();
      const wanted = target.statistic ?? "";
      const isKnown = [...this.statistic.options].some(({ value }) => value === wanted);
      if (isKnown) this.statistic.value = wanted;
    }
    if (isOther || this.heat?.statistic !== this.statistic.value) await this.ask(true);
    if (this.view.reveal(target.name, step)) return true;
    if (this.options.filter === "") return false;
    this.clear();
    return this.view.reveal(target.name, step);
  }

  /** The element in which the row of a target is shown, with its curve. */
  get place(): Element {
    return this.element.lastElementChild ?? this.element;
  }

  focusFilter(): void {
    goTo(this.filter);
  }

  /** Clears the filter and the selection. */
  clear(): void {
    this.filter.value = "";
    this.applyFilter();
    this.view.select(null);
  }

  switchGrouping(): void {
    this.grouping.value = this.options.grouping === "tensors" ? "layers" : "tensors";
    this.group(this.grouping.value as Grouping);
  }

  switchColoring(): void {
    this.coloring.value = this.options.coloring === "value" ? "change" : "value";
    this.color(this.coloring.value as Coloring);
  }

  private select(row: Row | null): void {
    this.selected = row;
    this.panel.show(this.heat, row);
  }

  private chooseKind(): void {
    this.setStatistics();
    void this.ask(true);
  }

  private setStatistics(): void {
    const kind = this.run && this.mapped(this.run).find(({ name }) => name === this.kind.value);
    setOptions(this.statistic, options(kind?.statistics ?? [], format.words));
  }

  private group(grouping: Grouping): void {
    this.options.grouping = grouping;
    this.show();
    if (this.selected) this.view.reveal(this.selected.name, null);
  }

  private color(coloring: Coloring): void {
    this.options.coloring = coloring;
    this.show();
  }

  private applyFilter(): void {
    this.options.filter = this.filter.value;
    this.show();
    this.onFilter();
  }

  private show(): void {
    const { heat } = this;
    this.view.update(heat, this.options);
    if (this.selected) this.panel.show(heat, this.rowNamed(this.selected));
    this.note.textContent = heat ? this.counts(heat) : "";
  }

  /** The row of the same name in another heat map. */
  private rowNamed(row: Row): Row | null {
    const found = this.view.rows.find(({ name }) => name === row.name);
    if (found) return found;
    const index = this.heat?.names.indexOf(row.name) ?? -1;
    return index >= 0 ? { ...row, isLayer: false, members: [index] } : null;
  }

  /** `202 layers, 2,002 tensors`. */
  private counts(heat: Heat): string {
    const { rows } = this.view;
    const layers = new Set(rows.map(({ layer }) => layer)).size;
    const tensors = rows.reduce((sum, row) => sum + (row.isInside ? 0 : row.members.length), 0);
    const of = tensors < heat.rows ? ` of ${format.integer(heat.rows)}` : "";
    const leftOut = this.run?.tables.rows_left_out ?? 0;
    const more = leftOut > 0 ? `; ${format.integer(leftOut)} more not shown` : "";
    const shown = tensors < heat.rows ? `${format.integer(tensors)}${of} tensors` : format.count(tensors, "tensor");
    return `${this.options.grouping === "layers" ? `${format.count(layers, "layer")}, ` : ""}${shown}${more}`;
  }

  /** Requests the new columns, or all columns of another heat map. */
  private async ask(isOther: boolean): Promise<void> {
    const { run } = this;
    const [kind, statistic] = [this.kind.value, this.statistic.value];
    if (!run || !kind || !statistic || (this.isAsking && !isOther) || document.hidden) return;
    const have = this.kept.get(`${kind} ${statistic}`) ?? null;
    if (isOther && have) this.use(have);
    const { generation, bins } = run.tables.columns;
    const rows = run.tables.kinds.find(({ name }) => name === kind)?.rows ?? 0;
    const isNew = !have || have.generation !== generation || have.columns !== bins || have.rows !== rows;
    const step = run.last.at(-1);
    // With merged columns, the newest one changes with every step, and only then.
    if (!isNew && (run.tables.columns.width === 1 || step === have.askedAt)) return;
    this.isAsking = true;
    try {
      const goesOn = have && have.generation === generation && have.rows === rows;
      this.take(await this.source.heatMap(kind, statistic, goesOn ? have.settled : 0), step);
    } catch {
      // The connection's state already shows the error, and the next second requests again.
    } finally {
      this.isAsking = false;
    }
  }

  private take(document: HeatMap, step: number | undefined): void {
    if (document.kind !== this.kind.value || document.statistic !== this.statistic.value) return;
    const key = `${document.kind} ${document.statistic}`;
    let heat: Heat | null = document.columns.from === 0 ? new Heat(document) : (this.kept.get(key) ?? null);
    if (document.columns.from > 0 && !heat?.apply(document)) heat = null;
    this.kept.delete(key);
    if (heat) {
      heat.askedAt = step;
      this.kept.set(key, heat);
    }
    const oldest = this.kept.keys().next().value;
    if (this.kept.size > KEPT && oldest !== undefined) this.kept.delete(oldest);
    this.use(heat);
  }

  private use(heat: Heat | null): void {
    this.heat = heat;
    this.show();
  }
}

function options(values: string[], text: (value: string) => string): { value: string; text: string }[] {
  return values.map((value) => ({ value, text: text(value) }));
}
