// The curves: a panel for what belongs together, all over the same steps.

import type { Run } from "../data/run";
import { el } from "../shared/dom";
import * as format from "../shared/format";
import { Chart, type Line, type Panel } from "./chart";
import type { Mark } from "./marks";

const line = (curve: string, label: string): Line => ({ curve, label });

/** In the order of the page; a panel without a value is not there. */
export const TRAINING: Panel[] = [
  { title: "Loss", lines: [line("loss", "loss")], log: false, show: precise },
  {
    title: "Gradient norm",
    lines: [line("grad_norm", "norm"), line("framework_grad_norm", "framework's")],
    log: true,
    show: format.number,
  },
  {
    title: "Update ratio",
    lines: [line("update_ratio_max", "largest"), line("update_ratio_median", "median")],
    log: true,
    show: format.number,
  },
  { title: "Update norm", lines: [line("update_norm", "norm")], log: true, show: format.number },
  { title: "Learning rate", lines: [line("learning_rate", "rate")], log: false, show: format.number },
  { title: "Step time", lines: [line("step_seconds", "step")], log: false, show: format.seconds },
  { title: "Collective operations", lines: [line("collective_seconds", "per step")], log: false, show: format.seconds },
];

/** Of trainmon itself. */
export const OWN: Panel[] = [
  { title: "Time per step", lines: [line("collect_seconds", "trainmon")], log: false, show: format.seconds },
];

/** Panels of the script's own numbers, beyond which the page says that there are more. */
const MAX_SCALARS = 24;

export class Curves {
  readonly element = el("div", { class: "curves" });
  private readonly charts = new Map<string, Chart>();
  private marks: Mark[] = [];
  private chosen: string | null = null;

  constructor(private readonly panels: (run: Run) => Panel[]) {
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  update(run: Run, marks: Mark[]): void {
    this.marks = marks;
    const shown = new Set<string>();
    for (const panel of this.panels(run)) {
      const present = panel.lines.filter(({ curve }) => run.newest(curve) !== null);
      // A script's number may be called as a panel is.
      const key = panel.lines[0]?.curve;
      if (present.length === 0 || key === undefined) continue;
      shown.add(key);
      let chart = this.charts.get(key);
      if (!chart || chart.lines.length !== present.length) {
        chart?.destroy();
        const next = new Chart({ ...panel, lines: present }, () => this.marks);
        if (chart) chart.element.replaceWith(next.element);
        else this.element.append(next.element);
        chart = next;
        this.charts.set(key, chart);
        chart.element.classList.toggle("chosen", key === this.chosen);
      }
      chart.update(run);
    }
    // Another run may have begun on the same port.
    for (const [key, chart] of this.charts) {
      if (shown.has(key)) continue;
      chart.destroy();
      chart.element.remove();
      this.charts.delete(key);
    }
  }

  get size(): number {
    return this.charts.size;
  }

  /** The curves stay as they are. */
  mark(marks: Mark[]): void {
    this.marks = marks;
    for (const chart of this.charts.values()) chart.mark();
  }

  /** Marks the panel of a curve; its element, if there is one. */
  choose(curve: string | null): HTMLElement | null {
    this.chosen = curve;
    for (const [key, chart] of this.charts) chart.element.classList.toggle("chosen", key === curve);
    return curve === null ? null : (this.charts.get(curve)?.element ?? null);
  }

  /** Draws anew: colours have changed. */
  redraw(): void {
    for (const chart of this.charts.values()) chart.restyle();
  }

  private resize(): void {
    for (const chart of this.charts.values()) chart.resize();
  }
}

function precise(value: number | null, digits = 4): string {
  return format.number(value, digits);
}

/** The script's own numbers that are quantities. */
export function scalarsOf(run: Run): string[] {
  const { labels } = run.tables;
  return [...run.curves.keys()].filter((name) => name.startsWith("scalar/") && !labels.includes(name));
}

export function scalarPanels(run: Run): Panel[] {
  return scalarsOf(run)
    .slice(0, MAX_SCALARS)
    .map((curve) => ({
      title: curve.slice("scalar/".length),
      lines: [line(curve, "value")],
      log: false,
      show: precise,
    }));
}

/** How many curves find no room; empty if all do. */
export function leftOut(run: Run): string {
  const hidden = Math.max(0, scalarsOf(run).length - MAX_SCALARS) + run.curvesLeftOut;
  return hidden > 0 ? `${format.count(hidden, "more curve")} ${hidden === 1 ? "is" : "are"} not drawn.` : "";
}
