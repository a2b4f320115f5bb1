// The list of alerts: those that go on, then those that are over; one of them is chosen.

import { type Alert, toNumber } from "../data/contract";
import { type Episode, type Group, groupsOf, isOngoing } from "../data/episodes";
import { clickable, el } from "../shared/dom";
import * as format from "../shared/format";

/** Beside alerts that go on, more than so many that are over stand behind a button. */
const FEW = 2;
/** And of one incident more than so many beside its headline. */
const FEW_OF_INCIDENT = 1;

/** `3 ongoing, 9 over`. */
export function alertCounts(ongoing: number, begun: number): string {
  if (begun === 0) return "none so far";
  if (ongoing === 0) return begun === 1 ? "1 alert, over" : `${format.count(begun, "alert")}, all over`;
  const over = begun - ongoing;
  return `${format.integer(ongoing)} ongoing${over > 0 ? `, ${format.integer(over)} over` : ""}`;
}

export class Alerts {
  readonly element: HTMLElement;
  private readonly counts = el("span", { class: "muted alert-counts" });
  private readonly list = el("ol", { class: "alerts", aria: { label: "alerts, those that go on first" } });
  private readonly fold = clickable({ class: "fold", aria: { controls: "over-alerts" } }, () => {
    this.isOpen = !this.showsOver;
    this.render();
  });
  private readonly overList = el("ol", {
    class: "alerts over-alerts",
    id: "over-alerts",
    aria: { label: "alerts that are over" },
  });
  private readonly note = el("p", { class: "note" });
  private episodes: Episode[] = [];
  private chosen: Episode | null = null;
  /** Until the reader says so, their number decides. */
  private isOpen: boolean | null = null;
  /** The incidents of which all alerts are shown. */
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

  /** `begun`: of the whole run, those that are no longer kept included. */
  update(episodes: Episode[], begun: number): void {
    const { chosen } = this;
    this.chosen = episodes.find(({ key }) => key === chosen?.key) ?? null;
    this.episodes = episodes;
    const key = JSON.stringify([episodes.map(({ key, end }) => [key, end?.step]), begun]);
    if (key === this.shown) return;
    this.shown = key;
    const gone = begun - episodes.filter(({ alert }) => alert.phase === "begins").length;
    this.note.textContent = gone > 0 ? `${format.count(gone, "older alert")} not kept here.` : "";
    this.counts.textContent = alertCounts(this.ongoing.length, begun);
    this.render();
  }

  /** The next (+1) or the one before (-1) of those that are shown; the first if none is chosen. */
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
    this.fold.textContent = `${showsOver ? "▾" : "▸"} ${format.integer(over.length)} over`;
    this.fold.setAttribute("aria-expanded", String(showsOver));
    this.overList.replaceChildren(...(showsOver ? groupsOf(over).flatMap((group) => this.group(group)) : []));
    this.note.hidden = this.note.textContent === "" && this.episodes.length > 0;
    if (this.episodes.length === 0) this.note.textContent = "No alert so far.";
    // The button that had the focus is another one now.
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

/** When it began, and how long it lasted. */
function stepWords({ alert, end }: Episode): string {
  if (end === null) return `since step ${format.integer(alert.step)}`;
  if (alert === end) return `until step ${format.integer(end.step)}`;
  const last = Math.max(alert.step, end.step - 1);
  return last === alert.step ? `step ${format.integer(last)}` : `steps ${format.steps(alert.step, last)}`;
}

/** Without what stands beside it already: the rule, and what moved first. */
function words({ rule, message }: Alert): string {
  const [said = ""] = message.split("; moved first: ");
  const text = said.startsWith(`${rule}: `) ? said.slice(rule.length + 2) : said;
  // A step is written as everywhere on the page.
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
