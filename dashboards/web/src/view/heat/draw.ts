// Draws the visible part of a heat map on its canvas, with the names of its rows, its steps, and marks.

import type { Alert } from "../../data/contract";
import * as format from "../../shared/format";
import { color } from "../../shared/theme";
import type { Row } from "./rows";
import type { Shown } from "./words";

export const AXIS = 24;
const MAX_LABELS = 260;
/** The number of names that are measured to find the width. */
const MEASURED = 300;
/** The space left of the names, for the mark of an open layer. */
const GUTTER = 16;
/** The space right of the names, for the mark of an alert. */
const MARK = 14;

export interface Frame extends Shown {
  /** A pixel per cell. */
  image: HTMLCanvasElement;
  width: number;
  height: number;
  /** The offset of the visible part in CSS pixels. */
  top: number;
  rowHeight: number;
  /** The width of the names. */
  labels: number;
  selected: string | null;
  cursor: { row: number; column: number } | null;
  alertSteps: number[];
  chosenStep: number | null;
  /** The rows with ongoing alerts. */
  alertRows: ReadonlyMap<string, Alert["severity"]>;
}

export function plotWidth({ width, labels }: { width: number; labels: number }): number {
  return Math.max(50, width - labels - 8);
}

export function draw(context: CanvasRenderingContext2D, frame: Frame): void {
  const { image, heat, rows, width, height, top, rowHeight, labels } = frame;
  context.clearRect(0, 0, width, height);
  context.font = `11px ${color("font")}`;
  context.textBaseline = "middle";
  context.imageSmoothingEnabled = false;
  const seen = Math.min(rows.length * rowHeight - top, height - AXIS);
  context.drawImage(image, 0, top / rowHeight, heat.columns, seen / rowHeight, labels, 0, plotWidth(frame), seen);
  context.save();
  context.beginPath();
  context.rect(0, 0, width, height - AXIS);
  context.clip();
  drawNames(context, frame, seen);
  drawCursor(context, frame);
  context.restore();
  drawSteps(context, frame, seen);
  drawAlerts(context, frame, seen);
}

function drawNames(context: CanvasRenderingContext2D, frame: Frame, seen: number): void {
  const { rows, top, rowHeight, labels, selected, alertRows, heat } = frame;
  const [text, muted, chosen, accent] = [color("text"), color("muted"), color("chosen"), color("accent")];
  context.textAlign = "left";
  const first = Math.max(0, Math.floor(top / rowHeight));
  for (let index = first; index < rows.length && index * rowHeight - top < seen; index += 1) {
    const row = rows[index];
    if (!row) continue;
    const y = index * rowHeight - top;
    const isSelected = row.name === selected;
    if (isSelected) {
      context.fillStyle = chosen;
      context.fillRect(0, y, labels - 2, rowHeight);
      context.strokeStyle = accent;
      context.lineWidth = 2;
      context.strokeRect(labels - 1, y, plotWidth(frame) + 2, rowHeight);
    }
    const middle = y + rowHeight / 2;
    context.fillStyle = muted;
    if (row.isLayer) context.fillText(row.isOpen ? "▾" : "▸", 3, middle);
    const begin = row.isInside ? 2 * GUTTER : GUTTER;
    context.fillStyle = row.isInside && !isSelected ? muted : text;
    context.fillText(shortened(context, labelOf(row, heat.layers), labels - begin - MARK), begin, middle);
    const severity = alertRows.get(row.name);
    if (severity) {
      context.fillStyle = color(severity);
      context.beginPath();
      context.arc(labels - MARK / 2 - 2, middle, 3.5, 0, 2 * Math.PI);
      context.fill();
    }
  }
}

/** The label of a row: below its layer, a tensor omits the layer's name. */
function labelOf(row: Row, layers: string[]): string {
  const prefix = `${layers[row.layer] ?? ""}.`;
  return row.isInside && row.name.includes(prefix) ? row.name.split(prefix).slice(1).join(prefix) : row.name;
}

function drawCursor(context: CanvasRenderingContext2D, frame: Frame): void {
  const { cursor, heat, labels, rowHeight, top } = frame;
  if (!cursor) return;
  const cell = plotWidth(frame) / heat.columns;
  context.strokeStyle = color("text");
  context.lineWidth = 1.5;
  const wide = Math.max(cell, 3);
  context.strokeRect(labels + (cursor.column + 0.5) * cell - wide / 2, cursor.row * rowHeight - top, wide, rowHeight);
}

function drawSteps(context: CanvasRenderingContext2D, frame: Frame, seen: number): void {
  const { heat, labels } = frame;
  const width = plotWidth(frame);
  context.fillStyle = color("muted");
  context.textAlign = "center";
  for (const { step, column } of ticks(heat, Math.max(2, Math.floor(width / 110)))) {
    const x = labels + (column * width) / heat.columns;
    const text = format.integer(step);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.max(labels + half, Math.min(labels + width - half, x)), seen + AXIS / 2 + 3);
  }
}

/** Round steps and their positions, in columns with fractions. */
function ticks({ first, last }: Frame["heat"], most: number): { step: number; column: number }[] {
  const [from = 0, to = 0] = [first[0], last.at(-1)];
  const rough = Math.max(1, (to - from) / most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const by = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
  const all: { step: number; column: number }[] = [];
  for (let step = Math.ceil(from / by) * by; step <= to; step += by) {
    const column = last.findIndex((end) => end >= step);
    const [begin = 0, end = 0] = [first[column], last[column]];
    all.push({ step, column: column + Math.max(0, step - begin) / (end - begin + 1) });
  }
  return all;
}

function drawAlerts(context: CanvasRenderingContext2D, frame: Frame, seen: number): void {
  const { heat, labels, alertSteps, chosenStep } = frame;
  const cell = plotWidth(frame) / heat.columns;
  for (const step of alertSteps) {
    const column = heat.last.findIndex((last) => last >= step);
    if (column < 0) continue;
    const x = labels + (column + 0.5) * cell;
    const isChosen = step === chosenStep;
    context.fillStyle = color(isChosen ? "critical" : "warning");
    context.beginPath();
    context.moveTo(x - 4, seen + 7);
    context.lineTo(x + 4, seen + 7);
    context.lineTo(x, seen + 1);
    context.fill();
    if (isChosen) {
      context.globalAlpha = 0.8;
      context.fillRect(x - cell / 2 - 1, 0, 1, seen);
      context.fillRect(x + cell / 2, 0, 1, seen);
      context.globalAlpha = 1;
    }
  }
}

/** The width of the widest name, within limits. */
export function labelWidth(context: CanvasRenderingContext2D, rows: Row[], layers: string[], width: number): number {
  context.font = `11px ${color("font")}`;
  const labels = rows.map((row) => ({ text: labelOf(row, layers), indent: row.isInside ? 2 * GUTTER : GUTTER }));
  const longest = labels.reduce((most, { text }) => Math.max(most, text.length), 0);
  // Only long names can be wide: not each of thousands is measured.
  const long = labels.filter(({ text, indent }) => text.length + indent / 4 > longest - 1).slice(0, MEASURED);
  const widest = long.reduce((most, { text, indent }) => Math.max(most, context.measureText(text).width + indent), 0);
  return Math.max(70, Math.min(MAX_LABELS, width / 3, Math.ceil(widest) + MARK + 2));
}

/** Shortens a name at the front, because its end identifies the tensor. */
function shortened(context: CanvasRenderingContext2D, name: string, room: number): string {
  if (context.measureText(name).width <= room) return name;
  let [low, high] = [0, name.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (context.measureText(`…${name.slice(middle)}`).width <= room) high = middle;
    else low = middle + 1;
  }
  return `…${name.slice(low)}`;
}
