// Puts the parts of the page together, and brings them what is new.

import type { Alert, HeatMap, RunDocument, Status, TailEvent } from "./data/contract";
import { Heat } from "./data/heat";
import { Run } from "./data/run";
import type { Connection, Listener, Source } from "./data/source";
import { button, el, select, setOptions } from "./shared/dom";
import * as format from "./shared/format";
import { goTo, type Keyboard, listen } from "./shared/keys";
import * as theme from "./shared/theme";
import { Alerts } from "./view/alerts";
import { Curves } from "./view/curves";
import type { Grouping } from "./view/grid";
import { Header } from "./view/header";
import { HeatView } from "./view/heatmap";
import { marksOf } from "./view/marks";
import { runHelp } from "./view/run_help";
import type { Coloring } from "./view/scale";
import * as tables from "./view/tables";

/** Rows of the table of the worst tensors. */
const WORST = 15;
/** A heat map changes with every step and is looked at now and then. */
const HEAT_MS = 1000;
/** What is most often looked at, if it was measured. */
const FIRST_KINDS = ["grad_reduced", "grad_unreduced", "update_ratio", "param_updated", "actv"];

export class App implements Listener {
  readonly element: HTMLElement;
  private run: Run | null = null;
  private heat: Heat | null = null;
  /** The newest step when it was last asked for. */
  private heatStep: number | undefined;
  private isAsking = false;
  private readonly heatOptions = { filter: "", grouping: "tensors" as Grouping, coloring: "value" as Coloring };
  private readonly help = runHelp();
  private readonly header: Header;
  private readonly curves = new Curves();
  private readonly heatView = new HeatView();
  private readonly alerts = new Alerts(() => this.mark());
  private readonly kind = select("kind of measurement", () => this.chooseKind());
  private readonly statistic = select("statistic", () => this.askHeat(true));
  private readonly grouping = select("rows", (value) => this.group(value as Grouping));
  private readonly coloring = select("colours", (value) => this.colorBy(value as Coloring));
  private readonly filter = el("input", { class: "filter", aria: { label: "filter tensors by name" } });
  private readonly heatNote = el("span", { class: "muted" });
  private readonly worst = el("div", {});
  private readonly parts = {
    ratios: section("Largest update ratios"),
    collectives: section("Collective operations"),
    cost: section("What trainmon costs"),
    ledger: section("Where records went"),
  };

  constructor(private readonly source: Source) {
    this.header = new Header(
      button("◐", "dark or light (t)", () => theme.toggle(), "icon"),
      button("?", "keys (?)", () => this.help.toggle(), "icon"),
    );
    this.filter.type = "search";
    this.filter.placeholder = "filter tensors  /";
    this.filter.addEventListener("input", () => this.applyFilter());
    setOptions(
      this.grouping,
      options(["tensors", "layers"], (name) => `by ${name.slice(0, -1)}`),
    );
    setOptions(
      this.coloring,
      options(["value", "change"], (name) => `colour: ${name}`),
    );
    this.element = this.layout();
    theme.onChange(() => {
      this.curves.redraw();
      this.heatView.rebuild();
    });
    listen(this.keys(), this.help);
    window.setInterval(() => void this.askHeat(false), HEAT_MS);
  }

  start(): void {
    this.source.start(this);
  }

  begin(document: RunDocument): void {
    this.run = new Run(document);
    this.heat = null;
    this.heatStep = undefined;
    this.show();
    this.showHeat();
    void this.askHeat(true);
  }

  tail(event: TailEvent): void {
    this.run?.apply(event);
    this.show();
  }

  status(status: Status): void {
    if (!this.run) return;
    this.run.status = status;
    this.header.update(this.run);
  }

  connection(state: Connection, reason?: string): void {
    this.header.connected(state, reason);
    this.element.classList.toggle("stale", state === "disconnected");
  }

  private layout(): HTMLElement {
    const heatHead = el(
      "div",
      { class: "section-head" },
      el("h2", { text: "Tensors by step" }),
      this.kind,
      this.statistic,
      this.grouping,
      this.coloring,
      this.filter,
      this.heatNote,
      this.heatView.legend,
    );
    const { ratios, collectives, cost, ledger } = this.parts;
    const worst = section("Farthest from their usual level");
    worst.body.append(this.worst);
    worst.element.hidden = false;
    const main = el(
      "main",
      {},
      this.curves.element,
      el("section", { class: "heat-section" }, heatHead, this.heatView.element),
      el("div", { class: "tables" }, worst.element, collectives.element),
    );
    const alerts = el("section", { class: "alerts-section" }, el("h2", { text: "Alerts" }), this.alerts.element);
    const side = el("aside", {}, alerts, ratios.element, cost.element, ledger.element);
    const columns = el("div", { class: "columns" }, main, side);
    return el("div", { class: "page" }, this.header.element, this.header.figures, columns, this.help.element);
  }

  private keys(): Keyboard {
    const older = () => this.alerts.move(1);
    const newer = () => this.alerts.move(-1);
    return {
      actions: {
        "/": () => goTo(this.filter),
        j: older,
        n: older,
        k: newer,
        p: newer,
        g: () => {
          this.grouping.value = this.heatOptions.grouping === "tensors" ? "layers" : "tensors";
          this.group(this.grouping.value as Grouping);
        },
        c: () => {
          this.coloring.value = this.heatOptions.coloring === "value" ? "change" : "value";
          this.colorBy(this.coloring.value as Coloring);
        },
        t: () => theme.toggle(),
      },
      escape: () => {
        this.filter.value = "";
        this.applyFilter();
        this.alerts.choose(null);
      },
    };
  }

  private show(): void {
    const { run } = this;
    if (!run) return;
    this.header.update(run);
    this.alerts.update(run.alerts);
    this.mark();
    const hasMaps = (name: string, statistics: string[]) => statistics.some((one) => this.source.has(name, one));
    const mapped = run.tables.kinds.filter(({ name, statistics }) => hasMaps(name, statistics));
    const kinds = mapped.map(({ name }) => name);
    const rank = (name: string) => (FIRST_KINDS.indexOf(name) + FIRST_KINDS.length + 1) % (FIRST_KINDS.length + 1);
    kinds.sort((a, b) => rank(a) - rank(b));
    setOptions(
      this.kind,
      options(kinds, (name) => name.replaceAll("_", " ")),
    );
    this.setStatistics();
    this.showWorst(run);
    this.parts.ratios.show(tables.ratios(run.tables));
    this.parts.collectives.show(tables.collectives(run.status.collectives));
    this.parts.cost.show(tables.cost(run.status.cost));
    this.parts.ledger.show(tables.ledger(run.status.ledger));
  }

  /** The chosen alert on curves and heat map. */
  private mark(): void {
    const { run } = this;
    if (!run) return;
    const chosen: Alert | null = this.alerts.choice;
    const marks = marksOf(run.alerts, chosen);
    this.curves.update(run, marks);
    this.heatView.marks(
      marks.map(({ step }) => step),
      chosen?.step ?? null,
    );
  }

  private showWorst(run: Run): void {
    this.worst.replaceChildren(tables.worst(run.tables, this.heatOptions.filter, WORST));
  }

  private chooseKind(): void {
    this.setStatistics();
    void this.askHeat(true);
  }

  private setStatistics(): void {
    const kind = this.run?.tables.kinds.find(({ name }) => name === this.kind.value);
    const statistics = kind?.statistics.filter((name) => this.source.has(kind.name, name)) ?? [];
    setOptions(
      this.statistic,
      options(statistics, (name) => name.replaceAll("_", " ")),
    );
  }

  private group(grouping: Grouping): void {
    this.heatOptions.grouping = grouping;
    this.showHeat();
  }

  private colorBy(coloring: Coloring): void {
    this.heatOptions.coloring = coloring;
    this.showHeat();
  }

  private applyFilter(): void {
    this.heatOptions.filter = this.filter.value;
    this.showHeat();
    if (this.run) this.showWorst(this.run);
  }

  private showHeat(): void {
    this.heatView.update(this.heat, this.heatOptions);
    const rows = this.heatView.shown;
    const all = this.heat?.rows ?? 0;
    const leftOut = this.run?.tables.rows_left_out ?? 0;
    const unit = this.heatOptions.grouping === "layers" ? "layers" : `of ${format.integer(all)} tensors`;
    const more = leftOut > 0 ? `, ${format.integer(leftOut)} more found no room` : "";
    this.heatNote.textContent = all > 0 ? `${format.integer(rows)} ${unit}${more}` : "";
  }

  /** Asks for the columns that are new; for all of them if another heat map is wanted. */
  private async askHeat(isOther: boolean): Promise<void> {
    const { run } = this;
    const [kind, statistic] = [this.kind.value, this.statistic.value];
    if (!run || !kind || !statistic || (this.isAsking && !isOther) || document.hidden) return;
    const have = this.heat?.kind === kind && this.heat.statistic === statistic ? this.heat : null;
    const { generation, bins } = run.tables.columns;
    const rows = run.tables.kinds.find(({ name }) => name === kind)?.rows ?? 0;
    const isNew = !have || have.generation !== generation || have.columns !== bins || have.rows !== rows;
    const step = run.last.at(-1);
    // The newest of merged columns changes with every step, and with nothing else.
    if (!isOther && !isNew && (run.tables.columns.width === 1 || step === this.heatStep)) return;
    this.isAsking = true;
    try {
      const goesOn = have && have.generation === generation && have.rows === rows;
      this.take(await this.source.heatMap(kind, statistic, goesOn ? have.settled : 0));
      this.heatStep = step;
    } catch {
      // The connection's state says so already, and the next second asks again.
    } finally {
      this.isAsking = false;
    }
  }

  private take(document: HeatMap): void {
    if (document.kind !== this.kind.value || document.statistic !== this.statistic.value) return;
    if (document.columns.from === 0) this.heat = new Heat(document);
    else if (!this.heat?.apply(document)) this.heat = null;
    this.showHeat();
  }
}

interface Section {
  element: HTMLElement;
  body: HTMLElement;
  show(content: HTMLElement | null): void;
}

/** A part of the page that is there when it has something to show. */
function section(title: string): Section {
  const body = el("div", {});
  const element = el("section", {}, el("h2", { text: title }), body);
  element.hidden = true;
  return {
    element,
    body,
    show(content) {
      element.hidden = content === null;
      if (content) body.replaceChildren(content);
    },
  };
}

function options(values: string[], text: (value: string) => string): { value: string; text: string }[] {
  return values.map((value) => ({ value, text: text(value) }));
}
