// The list of alerts: ongoing ones, then ended ones; one of them is selected.

import { type Alert, toNumber } from "../data/contract";
import { type Episode, type Group, groupsOf, isOngoing } from "../data/episodes";
import { clickable, el } from "../shared/dom";
import * as format from "../shared/format";

/** If alerts are ongoing, more ended ones than this are folded. */
const FEW = 2;
/** More alerts of an incident than this, besides its headline, are folded. */
const FEW_OF_INCIDENT = 1;

/** `3 ongoing, 9 ended`. */
export function alertCounts(ongoing: number, begun: number): string {
  if (begun === 0) return "none so far";
  if (ongoing === 0) return begun === 1 ? "1 alert, ended" : `${format.count(begun, "alert")}, all ended`;
  const over = begun - ongoing;
  return `${format.integer(ongoing)} ongoing${over > 0 ? `, ${format.integer(over)} ended` : ""}`;
}

export class Alerts {
  readonly element: HTMLElement;
  private readonly counts = el("span", { class: "muted alert-counts" });
  private readonly list = el("ol", { class: "alerts", aria: { label: "alerts, ongoing ones first" } });
  private readonly fold = clickable({ class: "fold", aria: { controls: "over-alerts" } }, () => {
    this.isOpen = !this.showsOver;
    this.render();
  });
  private readonly overList = el("ol", {
    class: "alerts over-alerts",
    id: "over-alerts",
    aria: { label: "ended alerts" },
  });
  private readonly note = el("p", { class: "note" });
  private episodes: Episode[] = [];
  private chosen: Episode | null = null;
  /** `null` until the reader folds or unfolds: then the number of alerts decides. */
  private isOpen: boolean | null = null;
  /** The incidents whose alerts are all shown. */
  private readonly openGroups = new Set<string>();
  private shown = "";

  constructor(private readonly onChoose: (episode: Episode | null) => void) {
    const head = el("div", { class: "alerts-head" }, el("h2", { text: "Alerts" }), this.counts);
    const body = el("div", { class: "alerts-body" }, this.list, this.fold, this.overList, this.note);
    this.element = el("section", { class: "alerts-section" }, head, body);
  }

  get choice(): Episode | null {
    return this.chosen;
  }

  private get ongoing(): Episode[] {
    return this.episodes.filter(isOngoing);
  }

  private get over(): Episode[] {
    return this.episodes.filter((episode) => !isOngoing(episode));
  }

  private get showsOver(): boolean {
    return this.isOpen ?? (this.ongoing.length === 0 || this.over.length <= FEW);
  }

  /** `begun`: the number in the whole run, including those no longer kept. */
  update(episodes: Episode[], begun: number): void {
    const { chosen } = this;
    this.chosen = episodes.find(({ key }) => key === chosen?.key) ?? null;
    this.episodes = episodes;
    const key = JSON.stringify([episodes.map(({ key, end }) => [key, end?.step]), begun]);
    if (key === this.shown) return;
    this.shown = key;
    const gone = begun - episodes.filter(({ alert }) => alert.phase === "begins").length;
    this.note.textContent = gone > 0 ? `${format.count(gone, "older alert")} not shown here.` : "";
    this.counts.textContent = alertCounts(this.ongoing.length, begun);
    this.render();
  }

  /** Selects the next (+1) or previous (-1) shown alert; the first if none is selected. */
  move(by: 1 | -1): void {
    const groups = [...groupsOf(this.ongoing), ...(this.showsOver ? groupsOf(this.over) : [])];
    const all = groups.flatMap((group) => [group.first, ...(this.showsAll(group) ? group.others : [])]);
    if (all.length === 0) return;
    const index = this.chosen ? all.indexOf(this.chosen) + by : 0;
    this.choose(all[Math.max(0, Math.min(all.length - 1, index))] ?? null);
  }

  choose(episode: Episode | null): void {
    if (episode === this.chosen) return;
    this.chosen = episode;
    this.render();
    this.element.querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
    this.onChoose(episode);
  }

  private render(): void {
    const { ongoing, over, showsOver } = this;
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.key : undefined;
    this.list.replaceChildren(...groupsOf(ongoing).flatMap((group) => this.group(group)));
    this.fold.hidden = over.length === 0;
    this.fold.textContent = `${showsOver ? "▾" : "▸"} ${format.integer(over.length)} ended`;
    this.fold.setAttribute("aria-expanded", String(showsOver));
    this.overList.replaceChildren(...(showsOver ? groupsOf(over).flatMap((group) => this.group(group)) : []));
    this.note.hidden = this.note.textContent === "" && this.episodes.length > 0;
    if (this.episodes.length === 0) this.note.textContent = "No alerts so far.";
    // The button with the focus was replaced by another one.
    const buttons = [...this.element.querySelectorAll<HTMLElement>("[data-key]")];
    if (focused !== undefined) buttons.find(({ dataset }) => dataset.key === focused)?.focus({ preventScroll: true });
  }

  private showsAll({ key, others }: Group): boolean {
    return others.length <= FEW_OF_INCIDENT || this.openGroups.has(key) || others.some((one) => one === this.chosen);
  }

  /** An incident: its headline, and the others or a button for them. */
  private group(group: Group): HTMLElement[] {
    const { key, first, others } = group;
    const isOpen = this.showsAll(group);
    const items = [this.item(first), ...(isOpen ? others.map((episode) => this.item(episode)) : [])];
    if (others.length <= FEW_OF_INCIDENT) return items;
    const text = `${isOpen ? "▾" : "▸"} ${format.integer(others.length)} more of this incident`;
    const properties = { class: "fold", text, data: { key: `all of ${key}` }, aria: { expanded: String(isOpen) } };
    const fold = clickable(properties, () => {
      if (isOpen) this.openGroups.delete(key);
      else this.openGroups.add(key);
      this.render();
    });
    items.splice(1, 0, el("li", {}, fold));
    return items;
  }

  private item(episode: Episode): HTMLElement {
    const { alert } = episode;
    const isChosen = episode === this.chosen;
    const head = el(
      "span",
      { class: "alert-head" },
      el("span", { class: "dot" }),
      el("b", { text: alert.rule }),
      el("span", { class: "alert-series", text: seriesWords(alert), title: seriesWords(alert) }),
      el("span", { class: "alert-step", text: stepWords(episode) }),
    );
    const body = clickable(
      { class: "alert-body", data: { key: episode.key }, aria: { pressed: String(isChosen) } },
      () => this.choose(isChosen ? null : episode),
      head,
      el("span", { class: "alert-words", text: words(alert) }),
      isOngoing(episode) || isChosen ? firstMove(alert) : null,
    );
    const classes = ["alert", alert.severity, isOngoing(episode) ? "" : "over", isChosen ? "chosen" : ""];
    return el("li", { class: classes.filter(Boolean).join(" ") }, body);
  }
}

/** The step in which it began, and its duration. */
function stepWords({ alert, end }: Episode): string {
  if (end === null) return `since step ${format.integer(alert.step)}`;
  if (alert === end) return `until step ${format.integer(end.step)}`;
  const last = Math.max(alert.step, end.step - 1);
  return last === alert.step ? `step ${format.integer(last)}` : `steps ${format.steps(alert.step, last)}`;
}

/** The message without the parts that are shown beside it: the rule, and what moved first. */
function words({ rule, message }: Alert): string {
  const [said = ""] = message.split("; moved first: ");
  const text = said.startsWith(`${rule}: `) ? said.slice(rule.length + 2) : said;
  // Steps are formatted like everywhere on the page.
  return text.replace(
    /\b(steps?) (\d+)\b/g,
    (_, word: string, step: string) => `${word} ${format.integer(Number(step))}`,
  );
}

function seriesWords({ series }: Alert): string {
  const signal = [format.words(series.signal), series.statistic].filter(Boolean).join(" ");
  return series.name ? `${signal} of ${series.name}` : signal;
}

function firstMove({ moved_first: move }: Alert): HTMLElement | null {
  if (!move) return null;
  const [value, expected] = [toNumber(move.value), toNumber(move.expected)];
  const signal = format.words(move.signal);
  // A number of the whole run has no layer.
  const name = move.tensor ?? move.layer;
  return el(
    "span",
    { class: "first-move" },
    el("span", { class: "muted", text: "moved first: " }),
    el("b", { text: name || signal }),
    `${name ? ` ${signal}` : ""} at step ${format.integer(move.step)}: `,
    `${format.number(value)}, usually ${format.number(expected)}`,
  );
}
