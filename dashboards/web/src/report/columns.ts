// The columns of the table of values: our own, then the headers of all tables.

import { DIRECTIONS, type Rows } from "./data";

export interface Column {
  key: string;
  /** The width in pixels. */
  width: number;
  of: (row: number) => string;
}

export interface Columns {
  /** All columns, the default ones first. */
  all: Column[];
  /** The keys of the default columns. */
  wanted: string[];
}

export function columnsOf(rows: Rows): Columns {
  const own: Column[] = [
    { key: "Level", width: 84, of: (row) => rows.levelName(row) },
    { key: "Step", width: 60, of: (row) => rows.step(row) },
    { key: "Rank", width: 56, of: (row) => String(rows.table(row).rank) },
    { key: "Value", width: 400, of: (row) => rows.value(row) },
    { key: "Argument", width: 110, of: (row) => rows.argument(row) },
    { key: "Operator", width: 300, of: (row) => rows.operator(row) },
    { key: "Module", width: 260, of: (row) => rows.module(row) },
    { key: "Direction", width: 110, of: (row) => DIRECTIONS[rows.direction(row)] ?? "" },
  ];
  const measured = rows.headers.map((key) => ({ key, width: widthOf(key), of: (row: number) => rows.cell(row, key) }));
  const all = [...own, ...measured];
  const wanted = usual(rows).filter((key) => all.some((column) => column.key === key));
  const place = ({ key }: Column) => (wanted.includes(key) ? wanted.indexOf(key) : wanted.length);
  // A stable sort: the other columns keep their order.
  return { all: all.toSorted((a, b) => place(a) - place(b)), wanted };
}

function usual(rows: Rows): string[] {
  const many = (key: "step" | "graph" | "rank") => new Set(rows.tables.map((table) => table[key])).size > 1;
  const hasDeviation = rows.headers.includes("Deviation");
  return [
    "Level",
    ...(many("step") || many("graph") ? ["Step"] : []),
    ...(many("rank") ? ["Rank"] : []),
    "Value",
    "Argument",
    "Module",
    "Difference",
    "Deviation",
    "Bound",
    "Cosine",
    ...(hasDeviation ? [] : ["MaxAbsErr", "MaxRelativeErr", "NPU MD5", "BENCH MD5"]),
    "NPU Dtype",
    "NPU Tensor Shape",
    "Err_message",
    "Bound Source",
  ];
}

function widthOf(header: string): number {
  if (/Name|Stack|Err_message/.test(header)) return 420;
  if (/Source/.test(header)) return 250;
  return /dtype|shape/i.test(header) ? 130 : 105;
}
