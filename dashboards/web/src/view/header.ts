// The line at the top: the run, its state, and its newest numbers.

import type { Run } from "../data/run";
import { episodesOf, isOngoing } from "../data/episodes";
import type { Connection } from "../data/source";
import { el } from "../shared/dom";
import * as format from "../shared/format";
import { alertCounts } from "./alerts";

/** Longer than a slow step takes. */
const QUIET_SECONDS = 30;

export class Header {
  readonly element: HTMLElement;
  readonly figures = el("dl", { class: "figures" });
  private readonly name = el("h1", {});
  private readonly where = el("span", { class: "where muted" });
  private readonly state = el("span", { class: "state", role: "status" });
  private connection: Connection = "connecting";
  private reason = "";
  private run: Run | null = null;
  /** The time of the newest status, and the age of its step at that time. */
  private heard = 0;

  constructor(...controls: Node[]) {
    const brand = el("span", { class: "brand", text: "trainmon" });
    const run = el("div", { class: "run" }, this.name, this.where);
    this.element = el("header", {}, brand, run, this.state, el("div", { class: "controls" }, ...controls));
    window.setInterval(() => this.say(), 1000);
  }

  connected(connection: Connection, reason = ""): void {
    [this.connection, this.reason] = [connection, reason];
    this.say();
  }

  update(run: Run): void {
    this.run = run;
    this.heard = Date.now();
    const { status } = run;
    this.name.textContent = status.run || "run";
    this.name.title = status.run;
    this.where.textContent = [
      status.world_size > 1 ? `rank ${status.rank} of ${status.world_size}` : `rank ${status.rank}`,
      status.host,
    ]
      .filter((fact) => fact)
      .join(" · ");
    document.title = `${status.run} · trainmon`;
    this.fill(run);
    this.say();
  }

  private fill(run: Run): void {
    const step = run.status.step ?? run.last.at(-1) ?? null;
    const { ledger } = run.status;
    const lost = ledger ? ledger.dropped + sum(ledger.sinks.map((sink) => sink.lost)) : 0;
    const ongoing = episodesOf(run.alerts).filter(isOngoing).length;
    const all: [string, string, boolean][] = [
      ["step", step === null ? "–" : format.integer(step), false],
      ["loss", format.precise(run.newest("loss")), isBroken(run.newest("loss"))],
      ["gradient norm", format.number(run.newest("grad_norm")), isBroken(run.newest("grad_norm"))],
      ["largest update ratio", format.number(run.newest("update_ratio_max")), isBroken(run.newest("update_ratio_max"))],
      ["learning rate", format.number(run.newest("learning_rate")), false],
      ["step time", format.seconds(run.newest("step_seconds")), false],
      ["alerts", alertCounts(ongoing, run.alertsBegun), ongoing > 0],
      // The header mentions the monitor itself only in case of a problem.
      ["records dropped", lost > 0 ? format.integer(lost) : "–", true],
    ];
    this.figures.replaceChildren(
      ...all
        .filter(([, value]) => value !== "–")
        .map(([term, value, isBad]) =>
          el(
            "div",
            {},
            el("dt", { text: term }),
            el("dd", { class: `${isBad ? "bad" : ""}${term === "alerts" ? " words" : ""}`, text: value }),
          ),
        ),
    );
  }

  private say(): void {
    const [kind, text] = this.words();
    this.state.dataset.kind = kind;
    this.state.textContent = text;
    this.state.title = this.reason;
  }

  private words(): [string, string] {
    if (this.connection === "file") return ["file", "recorded"];
    if (this.connection === "connecting") return ["waiting", "connecting"];
    if (this.connection === "disconnected") return ["lost", "disconnected, reconnecting"];
    const age = this.run?.status.seconds_since_last_step ?? null;
    if (age === null) return ["waiting", "waiting for the first step"];
    const now = age + (Date.now() - this.heard) / 1000;
    return now < QUIET_SECONDS ? ["live", "live"] : ["waiting", `no step for ${format.seconds(Math.floor(now))}`];
  }
}

function isBroken(value: number | null): boolean {
  return value !== null && !Number.isFinite(value);
}

function sum(values: number[]): number {
  return values.reduce((a, b) => a + b, 0);
}
