// The curves: a panel for each group, all over the same steps.

import type { Run } from "../data/run";
import { el } from "../shared/dom";
import * as format from "../shared/format";
import { Chart, type Line, type Panel } from "./chart";
import type { Mark } from "./marks";

const line = (curve: string, label: string): Line => ({ curve, label });

/** The panels in display order; a panel without values is not shown. */
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

/** The panels about trainmon itself. */
export const OWN: Panel[] = [
  { title: "Time per step", lines: [line("collect_seconds", "trainmon")], log: false, show: format.seconds },
];

/** The largest number of panels of the script's own numbers; a note counts further ones. */
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
      // A script's number may have the name of a panel.
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
    // Another run may have started on the same port.
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

  /** Sets the marks, keeping the curves. */
  mark(marks: Mark[]): void {
    this.marks = marks;
    for (const chart of this.charts.values()) chart.mark();
  }

  /** Marks the panel of a curve; returns its element, if there is one. */
  choose(curve: string | null): HTMLElement | null {
    this.chosen = curve;
    for (const [key, chart] of this.charts) chart.element.classList.toggle("chosen", key === curve);
    return curve === null ? null : (this.charts.get(curve)?.element ?? null);
  }

  /** Redraws everything after a change of colours. */
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

/** A note about the number of curves that are not drawn; empty if all are. */
export function leftOut(run: Run): string {
  const hidden = Math.max(0, scalarsOf(run).length - MAX_SCALARS) + run.curvesLeftOut;
  return hidden > 0 ? `${format.count(hidden, "more curve")} ${hidden === 1 ? "is" : "are"} not drawn.` : "";
}
