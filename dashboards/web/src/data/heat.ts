// A heat map of the page: one statistic of one kind.

import type { AxisDocument, HeatMap } from "./contract";

/** The content of a cell without a value. */
export const ABSENT = -1;

export class Heat {
  kind: string;
  statistic: string;
  names: string[];
  layers: string[];
  layerOf: number[];
  first: number[];
  last: number[];
  generation: number;
  /** Row after row, `first.length` values each. */
  values: Float32Array;
  /** Increases with every change of the values. */
  revision = 0;
  /** The newest step of the run when the newest columns were requested. */
  askedAt: number | undefined;

  constructor(document: HeatMap) {
    this.kind = document.kind;
    this.statistic = document.statistic;
    this.names = document.names;
    this.layers = document.layers;
    this.layerOf = document.layer_of;
    this.first = document.columns.first;
    this.last = document.columns.last;
    this.generation = document.columns.generation;
    this.values = decode(document.values);
  }

  get rows(): number {
    return this.names.length;
  }

  get columns(): number {
    return this.first.length;
  }

  /** The number of columns that will not change any more. */
  get settled(): number {
    return Math.max(0, this.columns - 1);
  }

  /**
   * Applies columns from one on; returns false if they do not continue the existing ones: then the whole map must be
   * requested.
   */
  apply(document: HeatMap): boolean {
    const { columns } = document;
    const isMine = document.kind === this.kind && document.statistic === this.statistic;
    const goesOn = columns.generation === this.generation && columns.from <= this.columns && columns.from > 0;
    if (!isMine || !goesOn || document.rows !== this.rows) return false;
    const tail = decode(document.values);
    const [before, added] = [columns.from, columns.first.length];
    const values = new Float32Array(this.rows * (before + added));
    for (let row = 0; row < this.rows; row += 1) {
      const start = row * (before + added);
      values.set(this.values.subarray(row * this.columns, row * this.columns + before), start);
      values.set(tail.subarray(row * added, (row + 1) * added), start + before);
    }
    this.values = values;
    this.revision += 1;
    this.extend(columns);
    return true;
  }

  private extend(columns: AxisDocument): void {
    this.first = [...this.first.slice(0, columns.from), ...columns.first];
    this.last = [...this.last.slice(0, columns.from), ...columns.last];
  }

  /** The values of a row, column by column. */
  row(row: number): Float32Array {
    return this.values.subarray(row * this.columns, (row + 1) * this.columns);
  }

  at(row: number, column: number): number {
    return this.values[row * this.columns + column] ?? ABSENT;
  }
}

function decode(base64: string): Float32Array {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index += 1) bytes[index] = text.charCodeAt(index);
  // Every machine that runs a browser is little-endian.
  return new Float32Array(bytes.buffer);
}
