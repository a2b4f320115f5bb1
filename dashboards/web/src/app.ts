// Assembles the parts of the page and passes new data to them.

import type { Alert, RunDocument, Status, TailEvent, TensorState } from "./data/contract";
import { type Episode, episodesOf, isOngoing } from "./data/episodes";
import { Run } from "./data/run";
import type { Connection, Listener, Source } from "./data/source";
import { curveOf, type Target, targetOf } from "./data/target";
import { button, el, replaceContent } from "./shared/dom";
import { type Keyboard, listen } from "./shared/keys";
import * as theme from "./shared/theme";
import { Alerts } from "./view/alerts";
import { Curves, leftOut, OWN, scalarPanels, TRAINING } from "./view/curves";
import { Header } from "./view/header";
import { labelTable } from "./view/labels";
import { marksOf, WEIGHT } from "./view/marks";
import { runHelp } from "./view/run_help";
import * as tables from "./view/tables";
import { Tensors } from "./view/tensors";

export class App implements Listener {
  readonly element: HTMLElement;
  private run: Run | null = null;
  private episodes: Episode[] = [];
  private readonly help = runHelp();
  private readonly header: Header;
  private readonly curves = new Curves(() => TRAINING);
  private readonly scalars = new Curves(scalarPanels);
  private readonly own = new Curves(() => OWN);
  private readonly tensors: Tensors;
  private readonly alerts = new Alerts((episode) => this.choose(episode));
  private readonly hiddenCurves = el("p", { class: "note" });
  private readonly parts = {
    farthest: section("Tensors far from their usual level at the newest step"),
    scalars: section("The script's own numbers", "scalars-section"),
    labels: section("Ranks and ids"),
    ratios: section("Largest update ratios"),
    collectives: section("Collective operations"),
    cost: section("Cost"),
    ledger: section("Where records went"),
  };
  private readonly ownCost = el("details", { class: "own-cost" }, el("summary", { text: "trainmon's own cost" }));

  constructor(source: Source) {
    this.source = source;
    this.header = new Header(
      button("◐", "Toggle dark and light (t)", () => theme.toggle(), "icon"),
      button("?", "Show keys (?)", () => this.help.toggle(), "icon"),
    );
    this.tensors = new Tensors(source, () => this.showFarthest());
    this.element = this.layout();
    theme.onChange(() => {
      for (const curves of [this.curves, this.scalars, this.own]) curves.redraw();
      this.tensors.redraw();
    });
    listen(this.keys(), this.help);
  }

  private readonly source: Source;

  start(): void {
    this.source.start(this);
  }

  begin(document: RunDocument): void {
    this.run = new Run(document);
    this.tensors.begin(this.run);
    this.show();
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
    const { farthest, scalars, labels, ratios, collectives, cost, ledger } = this.parts;
    scalars.body.append(this.scalars.element, this.hiddenCurves);
    farthest.element.hidden = false;
    this.ownCost.append(this.own.element, el("div", { class: "tables" }, cost.element, ledger.element));
    const main = el(
      "main",
      {},
      el("h2", { class: "unseen", text: "Curves" }),
      this.curves.element,
      this.tensors.element,
      scalars.element,
      el("div", { class: "tables" }, labels.element, ratios.element, collectives.element),
      this.ownCost,
    );
    const side = el("aside", { aria: { label: "alerts and tensors far from their usual level" } });
    side.append(this.alerts.element, farthest.element);
    const columns = el("div", { class: "columns" }, main, side);
    return el("div", { class: "page" }, this.header.element, this.header.figures, columns, this.help.element);
  }

  private keys(): Keyboard {
    const next = () => this.alerts.move(1);
    const before = () => this.alerts.move(-1);
    return {
      actions: {
        "/": () => this.tensors.focusFilter(),
        j: next,
        n: next,
        k: before,
        p: before,
        g: () => this.tensors.switchGrouping(),
        c: () => this.tensors.switchColoring(),
        t: () => theme.toggle(),
      },
      escape: () => {
        this.tensors.clear();
        this.alerts.choose(null);
      },
    };
  }

  private show(): void {
    const { run, parts } = this;
    if (!run) return;
    this.episodes = episodesOf(run.alerts);
    this.header.update(run);
    this.alerts.update(this.episodes, run.alertsBegun);
    this.tensors.update(run);
    const marks = marksOf(run.alerts, this.alerts.choice?.alert ?? null);
    for (const curves of [this.curves, this.scalars, this.own]) curves.update(run, marks);
    this.mark();
    this.hiddenCurves.textContent = leftOut(run);
    parts.scalars.element.hidden = this.scalars.size === 0;
    this.showFarthest();
    parts.labels.show(labelTable(run));
    parts.ratios.show(tables.ratios(run.tables));
    parts.collectives.show(tables.collectives(run.status.collectives));
    parts.cost.show(tables.cost(run.status.cost));
    parts.ledger.show(tables.ledger(run.status.ledger));
    const { cost, ledger } = parts;
    this.ownCost.hidden = cost.element.hidden && ledger.element.hidden && this.own.size === 0;
  }

  /** Marks the alerts, including the chosen one, on the heat map and the row's curve. */
  private mark(): void {
    const { run } = this;
    if (!run) return;
    const chosen = this.alerts.choice?.alert ?? null;
    const rows = new Map<string, Alert["severity"]>();
    for (const { alert } of this.episodes.filter(isOngoing)) {
      const name = targetOf(alert, [])?.name ?? "";
      const before = rows.get(name);
      if (before === undefined || WEIGHT[alert.severity] > WEIGHT[before]) rows.set(name, alert.severity);
    }
    this.tensors.mark(marksOf(run.alerts, chosen), chosen?.step ?? null, rows);
  }

  /** Shows the subject of an alert: its curve, its row, or both. */
  private choose(episode: Episode | null): void {
    const { run } = this;
    if (!run) return;
    const marks = marksOf(run.alerts, episode?.alert ?? null);
    for (const curves of [this.curves, this.scalars, this.own]) curves.mark(marks);
    this.mark();
    const curve = episode && curveOf(episode.alert);
    const panel = this.curves.choose(curve) ?? this.scalars.choose(curve);
    const target = episode && targetOf(episode.alert, this.tensors.mapped(run));
    if (!target) {
      panel?.scrollIntoView({ block: "nearest" });
      return;
    }
    void this.goTo(target, episode.alert.step).then((isThere) => {
      if (!isThere) panel?.scrollIntoView({ block: "nearest" });
    });
  }

  private async goTo(target: Target, step: number | null): Promise<boolean> {
    const isThere = await this.tensors.goTo(target, step);
    if (isThere) this.tensors.place.scrollIntoView({ block: "nearest" });
    return isThere;
  }

  private showFarthest(): void {
    const { run } = this;
    if (!run) return;
    const choose = ({ kind, name, step }: TensorState) =>
      void this.goTo({ kind, statistic: null, name, isLayer: false }, step);
    replaceContent(this.parts.farthest.body, tables.farthest(run.tables, this.tensors.options.filter, choose));
  }
}

interface Section {
  element: HTMLElement;
  body: HTMLElement;
  show(content: HTMLElement | null): void;
}

/** A part of the page that is visible when it has content. */
function section(title: string, className = ""): Section {
  const body = el("div", {});
  const element = el("section", { class: className }, el("h2", { text: title }), body);
  element.hidden = true;
  return {
    element,
    body,
    show(content) {
      element.hidden = content === null;
      if (content) replaceContent(body, content);
    },
  };
}
