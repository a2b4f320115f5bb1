// The shown rows and their order, kept in the address's fragment, so that a view can be linked.

import type { Columns } from "./columns";
import { DIRECTIONS, LEVELS, type Rows, stepOf } from "./data";

/** Text filters, by their names in the fragment. */
export const TEXTS = ["q", "rank", "step", "dir", "module", "sort"] as const;

export class Selection {
  q = "";
  rank = "";
  step = "";
  dir = "";
  module = "";
  /** The key of a column, or the order of execution. */
  sort = "";
  down = false;
  levels = new Set<number>(LEVELS.keys());
  columns: Set<string>;
  /** The row with open details; -1: none. */
  row = -1;

  constructor(private readonly known: Columns) {
    this.columns = new Set(known.wanted);
  }

  clear(): void {
    for (const key of TEXTS) this[key] = "";
    this.levels = new Set(LEVELS.keys());
  }

  /** Cycles through ascending, descending, and the order of execution. */
  sortBy(key: string): void {
    if (this.sort !== key) [this.sort, this.down] = [key, true];
    else if (this.down) this.down = false;
    else this.sort = "";
  }

  /** Reads a fragment such as `#q=norm&level=error,warning&row=9`; `rows`: the number of rows. */
  read(fragment: string, rows: number): void {
    const given = new URLSearchParams(fragment.replace(/^#/, ""));
    for (const key of TEXTS) this[key] = given.get(key) ?? "";
    this.down = given.get("order") === "down";
    const named = (given.get("level") ?? "").split(",").map((level) => LEVELS.findIndex((one) => one === level));
    const levels = named.filter((level) => level >= 0);
    this.levels = new Set(levels.length > 0 ? levels : LEVELS.keys());
    const keys = given.get("columns")?.split(",");
    const columns = keys?.filter((key) => this.known.all.some((column) => column.key === key));
    this.columns = new Set(columns && columns.length > 0 ? columns : this.known.wanted);
    const row = Number.parseInt(given.get("row") ?? "", 10);
    this.row = row >= 0 && row < rows ? row : -1;
  }

  write(): string {
    const given = new URLSearchParams();
    for (const key of TEXTS) if (this[key]) given.set(key, this[key]);
    if (this.sort && this.down) given.set("order", "down");
    if (this.levels.size < LEVELS.length) given.set("level", [...this.levels].map((level) => LEVELS[level]).join(","));
    if (this.row >= 0) given.set("row", String(this.row));
    const { wanted } = this.known;
    const isUsual = this.columns.size === wanted.length && wanted.every((key) => this.columns.has(key));
    if (!isUsual) given.set("columns", [...this.columns].join(","));
    return `#${given}`;
  }

  /** The rows that pass the filters, sorted. */
  rows(all: Rows): Int32Array {
    let rows = this.fitting(all);
    for (const word of this.q.split(/\s+/).filter(Boolean)) {
      rows = all.matching(rows, new RegExp(word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"));
    }
    return this.sorted(rows, all);
  }

  private fitting(all: Rows): Int32Array {
    const fits = (key: string, wanted: string) => !wanted || key === wanted;
    const tables = all.tables.map((table) => fits(String(table.rank), this.rank) && fits(stepOf(table), this.step));
    const direction = DIRECTIONS.findIndex((name) => name === this.dir);
    const inside = new Map<number, boolean>();
    const isInside = (row: number) => {
      const key = all.operatorKey(row);
      const known = inside.get(key);
      if (known !== undefined) return known;
      const is = beginsWith(all.operator(row), this.module) || beginsWith(all.module(row), this.module);
      inside.set(key, is);
      return is;
    };
    const rows = new Int32Array(all.total);
    let count = 0;
    for (let row = 0; row < all.total; row += 1) {
      if (!this.levels.has(all.level(row)) || !tables[all.tableNumber(row)]) continue;
      if (direction >= 0 && all.direction(row) !== direction) continue;
      if (this.module && !isInside(row)) continue;
      rows[count] = row;
      count += 1;
    }
    return rows.subarray(0, count);
  }

  private sorted(rows: Int32Array, all: Rows): Int32Array {
    const column = this.known.all.find(({ key }) => key === this.sort);
    if (!column) return rows;
    const isLevel = column.key === "Level";
    const texts = new Map(Array.from(rows, (row) => [row, isLevel ? String(all.level(row)) : column.of(row)]));
    const isNumeric = [...texts.values()].every((text) => !text || text === "N/A" || !Number.isNaN(numberOf(text)));
    const keys = new Map([...texts].map(([row, text]) => [row, isNumeric ? numberOf(text) : text]));
    const order = this.down ? -1 : 1;
    const before = (one: number, other: number): number => {
      const [a, b] = [keys.get(one) ?? Number.NaN, keys.get(other) ?? Number.NaN];
      const [isOut, isOtherOut] = [Number.isNaN(a), Number.isNaN(b)];
      // Rows without a number come last in both orders.
      if (isOut || isOtherOut) return Number(isOut) - Number(isOtherOut) || one - other;
      return a === b ? one - other : a < b ? -order : order;
    };
    return Int32Array.from(Array.from(rows).sort(before));
  }
}

function beginsWith(module: string, prefix: string): boolean {
  return module.startsWith(prefix) || bare(module).startsWith(prefix);
}

/** The module without the kind of call: `Module.blocks.2` is `blocks.2`. */
export function bare(module: string): string {
  return module.replace(/^(Module|Cell)\./, "");
}

function numberOf(text: string): number {
  if (/^\s*-?inf/i.test(text)) return text.includes("-") ? -Infinity : Infinity;
  return Number.parseFloat(text);
}
