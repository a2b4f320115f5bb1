// The details of one row: both sides' statistics, the measured differences, units in the last place, the stack.

import { button, el } from "../shared/dom";
import { table } from "../shared/table";
import type { Rows } from "./data";

/** Bins of units in the last place: 0, powers of two, more. */
const BINS = 17;
/** The height of the tallest bar in pixels. */
const BAR = 50;

export function detail(rows: Rows, row: number, close: () => void): HTMLElement[] {
  const module = rows.module(row);
  const level = el("span", { class: `level ${rows.levelName(row)}`, text: rows.levelName(row) });
  const argument = rows.argument(row);
  const place = ` · step ${rows.step(row)}, rank ${rows.table(row).rank} · operator ${rows.operator(row)}`;
  const notes = rows.notes(row).map((note) => el("li", { text: note }));
  const ulps = rows.ulps(row);
  const stack = rows.stack(row);
  return [
    button("Close", "Esc", close, "close"),
    el("h3", { text: rows.value(row) + (argument ? ` (${argument})` : "") }),
    el("p", { class: "muted" }, level, place, module ? ` · in ${module}` : ""),
    ...(notes.length > 0 ? [el("ul", {}, ...notes)] : []),
    statistics(rows, row),
    ...(ulps.length > 0 ? [el("h3", { text: "Elements by units in the last place" }), histogram(ulps)] : []),
    ...(stack ? [el("h3", { text: "Call stack (target, innermost frame first)" }), el("pre", { text: stack })] : []),
  ];
}

/** The statistics of both sides, and the measured differences. */
function statistics(rows: Rows, row: number): HTMLElement {
  const { headers } = rows.table(row);
  const pairs: string[][] = [];
  const single: string[][] = [];
  for (const header of headers) {
    const twin = header.replace(/^NPU /, header === "NPU MD5" ? "BENCH " : "Bench ");
    if (twin !== header && headers.includes(twin))
      pairs.push([header.slice(4), rows.cell(row, header), rows.cell(row, twin)]);
    else if (!/^bench |_Stack_Info|Err_message/i.test(header)) single.push([header, rows.cell(row, header)]);
  }
  const differs = ([, target, golden]: (Node | string)[]) => (target === golden ? "" : "differs");
  const both = table([["", "text"], ["target", "text"], ["golden", "text"]], pairs, differs); // prettier-ignore
  return el("div", { class: "sides" }, both, table([["", "text"], ["measured", "text"]], single)); // prettier-ignore
}

function histogram(counts: number[]): HTMLElement {
  const name = (bin: number) => (bin === 0 ? "0" : bin === BINS - 1 ? ">16384" : `≤${2 ** (bin - 1)}`);
  const largest = Math.max(...counts);
  const bars = Array.from({ length: BINS }, (_, bin) => {
    const count = counts[bin] ?? 0;
    const bar = el("i");
    bar.style.height = `${Math.round((count / largest) * BAR)}px`;
    const title = `${count} elements differ by ${name(bin)} ULP`;
    return el("div", { title }, count ? count.toLocaleString("en") : "", bar, el("span", { text: name(bin) }));
  });
  const label = counts.map((count, bin) => `${count} elements ${name(bin)}`).join(", ");
  return el("div", { class: "ulps", role: "img", aria: { label } }, ...bars);
}
