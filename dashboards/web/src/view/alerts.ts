// The list of alerts, newest first, with what moved first; one of them is chosen.

import { type Alert, toNumber } from "../data/contract";
import { el } from "../shared/dom";
import * as format from "../shared/format";

export class Alerts {
  readonly element = el("ol", { class: "alerts", aria: { label: "alerts, newest first" } });
  /** Newest first. */
  private alerts: Alert[] = [];
  private chosen: Alert | null = null;
  private shown = "";

  constructor(private readonly onChoose: (alert: Alert | null) => void) {}

  get choice(): Alert | null {
    return this.chosen;
  }

  update(alerts: Alert[]): void {
    const newestFirst = alerts.toReversed();
    const key = `${newestFirst.length} ${newestFirst[0]?.time} ${newestFirst[0]?.rule} ${newestFirst.at(-1)?.step}`;
    // After a new beginning the alerts are other objects, but the same ones.
    const before = this.chosen && JSON.stringify(this.chosen);
    this.chosen = newestFirst.find((alert) => alert === this.chosen || JSON.stringify(alert) === before) ?? null;
    this.alerts = newestFirst;
    if (key === this.shown) return;
    this.shown = key;
    this.render();
  }

  /** The next older (+1) or newer (-1) one; the newest if none is chosen. */
  move(by: 1 | -1): void {
    if (this.alerts.length === 0) return;
    const index = this.chosen ? this.alerts.indexOf(this.chosen) + by : 0;
    this.choose(this.alerts[Math.max(0, Math.min(this.alerts.length - 1, index))] ?? null);
    this.element.querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
  }

  choose(alert: Alert | null): void {
    this.chosen = alert;
    this.render();
    this.onChoose(alert);
  }

  private render(): void {
    if (this.alerts.length === 0) {
      this.element.replaceChildren(el("li", { class: "note", text: "No alert so far." }));
      return;
    }
    this.element.replaceChildren(...this.alerts.map((alert) => this.item(alert)));
  }

  private item(alert: Alert): HTMLElement {
    const isOver = alert.phase === "ends";
    const isChosen = alert === this.chosen;
    const classes = ["alert", alert.severity, isOver ? "over" : "", isChosen ? "chosen" : ""];
    const head = el(
      "div",
      { class: "alert-head" },
      el("span", { class: "dot" }),
      el("b", { text: alert.rule }),
      el("span", { class: "muted", text: isOver ? "is over" : seriesWords(alert) }),
      el("span", { class: "alert-step", text: `step ${format.integer(alert.step)}` }),
    );
    const item = el(
      "li",
      { class: classes.join(" ") },
      head,
      el("p", { text: words(alert) }),
      isOver ? null : firstMove(alert),
    );
    item.tabIndex = 0;
    item.addEventListener("click", () => this.choose(isChosen ? null : alert));
    item.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.choose(isChosen ? null : alert);
    });
    return item;
  }
}

/** Without what stands beside it already: the rule, and what moved first. */
function words({ rule, message }: Alert): string {
  const [said = ""] = message.split("; moved first: ");
  return said.startsWith(`${rule}: `) ? said.slice(rule.length + 2) : said;
}

function seriesWords({ series }: Alert): string {
  const signal = [series.signal.replaceAll("_", " "), series.statistic].filter(Boolean).join(" ");
  return series.name ? `${signal} of ${series.name}` : signal;
}

function firstMove({ moved_first: move }: Alert): HTMLElement | null {
  if (!move) return null;
  const [value, expected] = [toNumber(move.value), toNumber(move.expected)];
  const signal = move.signal.replaceAll("_", " ");
  // A number of the whole run has no layer.
  const name = move.tensor ?? move.layer;
  return el(
    "p",
    { class: "first-move" },
    el("span", { class: "muted", text: "moved first: " }),
    el("b", { text: name || signal }),
    `${name ? ` ${signal}` : ""} at step ${format.integer(move.step)}: `,
    `${format.number(value)}, usually ${format.number(expected)}`,
  );
}
