// Marks on the curves: the steps of alerts, and bins with a non-finite value.

import type uPlot from "uplot";
import type { Alert } from "../data/contract";
import { el } from "../shared/dom";
import * as format from "../shared/format";
import { color, hideTip, showTip } from "../shared/theme";

/** The alerts of one step. */
export interface Mark {
  step: number;
  alerts: Alert[];
  severity: Alert["severity"];
  isChosen: boolean;
}

/** The order of severities. */
export const WEIGHT = { info: 0, warning: 1, critical: 2 };

/** The marks of alerts that begin, and of the selected one, grouped by step. */
export function marksOf(alerts: Alert[], chosen: Alert | null): Mark[] {
  const marks = new Map<number, Mark>();
  for (const alert of alerts) {
    if (alert.phase !== "begins" && alert !== chosen) continue;
    const { step, severity } = alert;
    const mark = marks.get(step) ?? { step, alerts: [], severity, isChosen: false };
    mark.alerts.push(alert);
    if (WEIGHT[severity] > WEIGHT[mark.severity]) mark.severity = severity;
    mark.isChosen ||= alert === chosen;
    marks.set(step, mark);
  }
  return [...marks.values()];
}

interface MarksOptions {
  marks: () => Mark[];
  first: () => number[];
  last: () => number[];
  /** Whether each bin has a non-finite value. */
  broken: () => boolean[];
}

/** The largest distance of the pointer from a mark, in CSS pixels. */
const NEAR = 5;

export function marksPlugin({ marks, first, last, broken }: MarksOptions): uPlot.Plugin {
  /** The position of a curve's point: a bin's values are drawn at its last step. */
  const placeOf = (step: number): number => {
    const ends = last();
    const bin = ends.findIndex((end) => end >= step);
    return bin >= 0 && (first()[bin] ?? 0) <= step ? (ends[bin] ?? step) : step;
  };
  const draw = (plot: uPlot) => {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, 0, width, top + height);
    ctx.clip();
    ctx.fillStyle = color("broken");
    broken().forEach((isBroken, bin) => {
      if (!isBroken) return;
      const x = plot.valToPos(last()[bin] ?? 0, "x", true);
      ctx.fillRect(x - ratio, top, 2 * ratio, height);
    });
    for (const mark of marks()) {
      const x = Math.round(plot.valToPos(placeOf(mark.step), "x", true));
      ctx.strokeStyle = ctx.fillStyle = color(mark.severity);
      ctx.globalAlpha = mark.isChosen ? 1 : 0.55;
      ctx.lineWidth = (mark.isChosen ? 2 : 1) * ratio;
      ctx.setLineDash(mark.isChosen ? [] : [3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
      ctx.globalAlpha = 1;
      const half = (mark.isChosen ? 6 : 4) * ratio;
      ctx.beginPath();
      ctx.moveTo(x - half, top - half);
      ctx.lineTo(x + half, top - half);
      ctx.lineTo(x, top + half);
      ctx.fill();
    }
    ctx.restore();
  };
  const hover = (plot: uPlot, event: MouseEvent) => {
    const { left = -1 } = plot.cursor;
    const near = marks().filter((mark) => Math.abs(plot.valToPos(placeOf(mark.step), "x") - left) <= NEAR);
    if (left < 0 || near.length === 0) {
      hideTip();
      return;
    }
    const alerts = near.flatMap((mark) => mark.alerts);
    const lines = alerts.slice(0, 4).map((alert) => {
      const rule = el("b", { class: alert.severity, text: alert.rule });
      return el("span", {}, rule, ` step ${format.integer(alert.step)}: ${alert.message}`);
    });
    const more = alerts.length > 4 ? [`and ${format.count(alerts.length - 4, "more alert")}`] : [];
    showTip(event.clientX, event.clientY, ...lines, ...more);
  };
  return {
    hooks: {
      draw: [draw],
      init: [
        (plot) => {
          plot.over.addEventListener("mousemove", (event) => hover(plot, event));
          plot.over.addEventListener("mouseleave", hideTip);
        },
      ],
    },
  };
}
