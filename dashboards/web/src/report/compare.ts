// The report of a comparison of captures: its values, with search, sorting and details.

import { el } from "../shared/dom";
import { goTo } from "../shared/keys";
import { columnsOf } from "./columns";
import { ERROR, type ReportData, Rows } from "./data";
import { detail } from "./detail";
import { Filters, ResultBar } from "./filters";
import { frame } from "./frame";
import { RowGrid } from "./grid";
import { Selection } from "./selection";

class Values {
  private readonly columns;
  private readonly selection;
  private readonly filters;
  private readonly grid;
  private readonly bar = new ResultBar(
    (direction) => this.goToError(direction),
    () => this.clear(),
  );
  private readonly detail = el("aside", { id: "detail", aria: { label: "the selected row" } });

  private readonly nothing = el("p", { id: "nothing", class: "muted", text: "No row matches the search." });

  constructor(
    private readonly rows: Rows,
    section: HTMLElement,
  ) {
    this.columns = columnsOf(rows);
    this.selection = new Selection(this.columns);
    this.filters = new Filters(rows, this.columns, this.selection, {
      rows: () => this.update(),
      columns: () => this.redraw(),
    });
    this.grid = new RowGrid(rows, this.columns.all, this.selection, {
      sort: (key) => {
        this.selection.sortBy(key);
        this.update();
      },
      choose: (row) => this.choose(row),
    });
    section.append(this.filters.element, this.bar.element, this.nothing, this.grid.element, this.detail);
  }

  /** Starts with the state in the address. */
  start(): void {
    this.selection.read(location.hash, this.rows.total);
    this.filters.show();
    this.update();
    this.grid.scrollTo(this.selection.row);
    this.choose(this.selection.row);
  }

  goToSearch(): void {
    goTo(this.filters.search);
  }

  /** Goes to the first error, or to the previous or next one from the selected row. */
  goToError(direction: -1 | 0 | 1): void {
    const { shown } = this.grid;
    const here = shown.indexOf(this.selection.row);
    const by = direction < 0 ? -1 : 1;
    let at = direction !== 0 && here >= 0 ? here + direction : by > 0 ? 0 : shown.length - 1;
    for (; at >= 0 && at < shown.length; at += by) {
      const row = shown[at] ?? -1;
      if (this.rows.level(row) !== ERROR) continue;
      this.grid.scrollTo(row);
      this.choose(row);
      // The table itself may be out of sight, far below the sentence.
      return this.grid.element.scrollIntoView({ block: "nearest" });
    }
  }

  close(): void {
    if (this.selection.row >= 0) this.choose(-1);
  }

  private clear(): void {
    this.selection.clear();
    this.filters.show();
    this.update();
  }

  private update(): void {
    const shown = Int32Array.from(this.selection.rows(this.rows));
    this.grid.show(shown);
    const errors = shown.reduce((sum, row) => sum + Number(this.rows.level(row) === ERROR), 0);
    this.bar.show(shown.length, this.rows.total, errors);
    this.nothing.hidden = shown.length > 0;
    this.remember();
  }

  private redraw(): void {
    this.grid.drawHead();
    this.grid.drawRows();
    this.remember();
  }

  private choose(row: number): void {
    this.selection.row = row;
    this.grid.drawRows();
    this.detail.hidden = row < 0;
    this.detail.replaceChildren(...(row < 0 ? [] : detail(this.rows, row, () => this.close())));
    this.remember();
    if (row >= 0) this.detail.scrollIntoView({ block: "nearest" });
  }

  private remember(): void {
    try {
      history.replaceState(null, "", this.selection.write());
    } catch {
      // A browser may refuse it for files.
    }
  }
}

/** Rows that the page contains compressed with gzip and encoded in base64. */
async function unpacked(text: string): Promise<ReportData> {
  const packed = Uint8Array.from(atob(text.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as ReportData;
}

function show(data: ReportData, section: HTMLElement): void {
  const values = new Values(new Rows(data), section);
  frame({
    actions: {
      "/": () => values.goToSearch(),
      n: () => values.goToError(1),
      p: () => values.goToError(-1),
    },
    escape: () => values.close(),
    keys: [
      ["/", "search for words in any cell"],
      ["n  p", "next or previous error"],
      ["↑  ↓", "select a row in the table"],
      ["Esc", "close the selected row"],
    ],
    pointer: [
      ["click", "on a row: show its details; on a column header: sort by it"],
      ["hover", "show the full text of a shortened cell"],
    ],
  });
  window.addEventListener("hashchange", () => {
    values.start();
    section.scrollIntoView();
  });
  values.start();
}

const holder = document.getElementById("data");
const section = document.getElementById("values");
const text = holder?.textContent;
if (text && section && holder.getAttribute("type") === "application/gzip") {
  unpacked(text).then(
    (data) => show(data, section),
    (error: unknown) => section.append(el("p", { text: `Cannot decompress the table: ${String(error)}` })),
  );
} else if (text && section) {
  show(JSON.parse(text) as ReportData, section);
} else {
  frame({ actions: {}, escape: () => {}, keys: [], pointer: [] });
}
