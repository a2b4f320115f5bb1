// The rows of a comparison of captures in the page; offline/compare/src/report writes them.

export const LEVELS = ["pass", "warning", "error", "unmatched"] as const;
export const ERROR = LEVELS.indexOf("error");
export const DIRECTIONS = ["forward", "backward", "parameters_grad", "other"] as const;

/** One table: a step of a rank. */
export interface Table {
  step: string | number;
  graph: string;
  rank: number;
  headers: string[];
  operators: string[];
  /** The text index of the surrounding module, by operator. */
  modules: number[];
  /** The text index of the names of positional parameters, separated by spaces, by operator. */
  parameters: number[];
  /** A digit per operator: an index in `DIRECTIONS`. */
  directions: string;
  /** Level (a digit) and number of the operator, counts of units in the last place, the table's cells. */
  rows: string[];
}

export interface ReportData {
  /** The number of rows by level, including omitted ones. */
  counts: number[];
  /** Texts that rows share. */
  texts: string[];
  tables: Table[];
}

const BETWEEN = "\x7f";
/** A multiple above the largest number of operators in a table. */
const TABLE = 2 ** 22;

/** The rows of all tables, by number. A row's line is parsed when it is read. */
export class Rows {
  readonly total: number;
  readonly tables: Table[];
  readonly counts: number[];
  /** The headers of all tables. */
  readonly headers: string[];
  private readonly texts: string[];
  private readonly lines: string[];
  private readonly tableNumbers: Int32Array;
  private readonly operatorNumbers: Int32Array;
  private readonly places: Map<string, number[]>;
  /** The row that was parsed last: its cells are requested one by one. */
  private opened = -1;
  private cells: string[] = [];

  constructor({ counts, texts, tables }: ReportData) {
    this.counts = counts;
    this.texts = texts;
    this.tables = tables;
    this.lines = tables.flatMap(({ rows }) => rows);
    this.total = this.lines.length;
    this.tableNumbers = new Int32Array(this.total);
    this.operatorNumbers = new Int32Array(this.total);
    let row = 0;
    tables.forEach(({ rows }, number) => {
      for (const line of rows) {
        this.tableNumbers[row] = number;
        this.operatorNumbers[row] = Number.parseInt(line.slice(1, line.indexOf(BETWEEN)), 10);
        row += 1;
      }
    });
    this.headers = [...new Set(tables.flatMap(({ headers }) => headers))];
    this.places = new Map(this.headers.map((header) => [header, tables.map((table) => table.headers.indexOf(header))]));
  }

  tableNumber(row: number): number {
    return this.tableNumbers[row] ?? 0;
  }

  table(row: number): Table {
    // Every row has been counted into a table.
    return this.tables[this.tableNumber(row)] as Table;
  }

  level(row: number): number {
    return this.line(row).charCodeAt(0) - 48;
  }

  levelName(row: number): string {
    return LEVELS[this.level(row)] ?? "";
  }

  operatorNumber(row: number): number {
    return this.operatorNumbers[row] ?? 0;
  }

  operator(row: number): string {
    return this.table(row).operators[this.operatorNumber(row)] ?? "";
  }

  /** A number that identifies the operator of a row. */
  operatorKey(row: number): number {
    return this.tableNumber(row) * TABLE + this.operatorNumber(row);
  }

  module(row: number): string {
    return this.texts[this.table(row).modules[this.operatorNumber(row)] ?? -1] ?? "";
  }

  /** The value's name in the operator's documentation, if it is a named argument. */
  argument(row: number): string {
    const [part, at, ...rest] = this.value(row)
      .slice(this.operator(row).length + 1)
      .split(".");
    if (at === undefined || rest.length > 0 || (part !== "input" && part !== "parameters")) return "";
    if (!/^\d+$/.test(at)) return at;
    const names = this.texts[this.table(row).parameters[this.operatorNumber(row)] ?? -1] ?? "";
    return part === "input" ? (names.split(" ")[Number(at)] ?? "") : "";
  }

  direction(row: number): number {
    return this.table(row).directions.charCodeAt(this.operatorNumber(row)) - 48;
  }

  step(row: number): string {
    return stepOf(this.table(row));
  }

  /** The number of elements by units in the last place; empty if they were not counted. */
  ulps(row: number): number[] {
    const counts = this.line(row).split(BETWEEN, 2)[1];
    return counts ? counts.split(" ").map(Number) : [];
  }

  cell(row: number, header: string): string {
    const place = this.places.get(header)?.[this.tableNumber(row)] ?? -1;
    return place < 0 ? "" : (this.cellsOf(row)[place] ?? "");
  }

  /** The value's name in the target, or in the baseline if only that has it. */
  value(row: number): string {
    const target = this.cell(row, "NPU Name");
    return target && target !== "N/A" ? target : this.cell(row, "Bench Name");
  }

  /** The notes on a row. */
  notes(row: number): string[] {
    const text = this.cell(row, "Err_message");
    try {
      const notes: unknown = JSON.parse(text);
      return Array.isArray(notes) ? notes.map(String) : [String(notes)];
    } catch {
      return text ? [text] : [];
    }
  }

  /** The operator's call stack, which is stored with its first value. */
  stack(row: number): string {
    for (let at = row; at >= 0 && this.operatorKey(at) === this.operatorKey(row); at -= 1) {
      const stack = this.cell(at, "NPU_Stack_Info");
      if (stack && stack !== "N/A") return stack;
    }
    return "";
  }

  /** The rows whose level, operator, module or cells match. */
  matching(rows: Int32Array, pattern: RegExp): Int32Array {
    const hits = this.texts.map((text) => pattern.test(text));
    const isShared = hits.includes(true);
    const levels = LEVELS.map((level) => pattern.test(level));
    return rows.filter((row) => {
      if (levels[this.level(row)] || hits[this.table(row).modules[this.operatorNumber(row)] ?? -1]) return true;
      if (pattern.test(this.operator(row))) return true;
      // Testing the whole line first quickly excludes most rows.
      const line = this.line(row);
      if (!pattern.test(line) && !(isShared && line.includes(`${BETWEEN}@`))) return false;
      return this.cellsOf(row).some((cell) => pattern.test(cell));
    });
  }

  private line(row: number): string {
    return this.lines[row] ?? "";
  }

  /**
   * A cell equal to the previous one is `=`, a shared text `@` and its number; a text that begins with one of these is
   * prefixed with `=`.
   */
  private cellsOf(row: number): string[] {
    if (row === this.opened) return this.cells;
    this.opened = row;
    this.cells = [];
    let before = "";
    for (const cell of this.line(row).split(BETWEEN).slice(2)) {
      if (cell[0] === "@") before = this.texts[Number.parseInt(cell.slice(1), 10)] ?? "";
      else if (cell !== "=") before = cell[0] === "=" ? cell.slice(1) : cell;
      this.cells.push(before);
    }
    return this.cells;
  }
}

export function stepOf(table: Table): string {
  return `${table.graph ? `${table.graph}/` : ""}${table.step}`;
}
