"use strict";
(() => {
  const LEVELS = ["pass", "warning", "error", "unmatched"];
  const DIRECTIONS = ["forward", "backward", "parameters_grad", "other"];
  const ROW = 28; // pixels, as in the style
  const BEYOND = 12; // rows drawn above and below what is seen
  const id = (name) => document.getElementById(name);
  const data = JSON.parse(id("data").textContent);
  const { texts, tables } = data;

  // A row is a line: level (a digit) and number of the operator, counts of units in the last place, the table's cells. A cell
  // equal to the one before it is "=", one of the shared texts is "@" and its number, one that begins like these has a "=" in front.
  const BETWEEN = "\x7f";
  const total = tables.reduce((sum, table) => sum + table.rows.length, 0);
  const lineOf = [];
  const tableOf = new Int32Array(total);
  const operatorAt = new Int32Array(total);
  tables.forEach((table, number) => {
    for (const line of table.rows) {
      tableOf[lineOf.length] = number;
      operatorAt[lineOf.length] = Number.parseInt(line.slice(1, line.indexOf(BETWEEN)), 10);
      lineOf.push(line);
    }
  });
  // The cells of a row; the row looked at last is remembered, since its cells are asked for one by one.
  let [opened, cells] = [-1, []];
  function cellsOf(row) {
    if (row === opened) return cells;
    [opened, cells] = [row, []];
    let before = "";
    for (const cell of lineOf[row].split(BETWEEN).slice(2)) {
      if (cell[0] === "@") cells.push(texts[Number.parseInt(cell.slice(1), 10)]);
      else if (cell === "=") cells.push(before);
      else cells.push(cell[0] === "=" ? cell.slice(1) : cell);
      before = cells.at(-1);
    }
    return cells;
  }
  const ulpsOf = (row) => lineOf[row].split(BETWEEN, 2)[1];
  const levelOf = (row) => lineOf[row].charCodeAt(0) - 48;
  const operatorOf = (row) => operatorAt[row];
  const operatorName = (row) => tables[tableOf[row]].operators[operatorAt[row]];
  const moduleOf = (row) => texts[tables[tableOf[row]].modules[operatorAt[row]]];
  const directionOf = (row) => tables[tableOf[row]].directions.charCodeAt(operatorAt[row]) - 48;
  const many = (key) => new Set(tables.map((table) => table[key])).size > 1;
  const stepOf = (table) => (table.graph ? table.graph + "/" : "") + table.step;

  // Columns: our own, then every header of any table.
  const headers = [...new Set(tables.flatMap((table) => table.headers))];
  const places = new Map(headers.map((header) => [header, tables.map((table) => table.headers.indexOf(header))]));
  const ofHeader = (header) => (row) => {
    const place = places.get(header)[tableOf[row]];
    return place < 0 ? "" : cellsOf(row)[place];
  };
  const nameOf = (row) => {
    const target = ofHeader("NPU Name")(row);
    return target && target !== "N/A" ? target : ofHeader("Bench Name")(row);
  };
  const all = [
    { key: "Level", width: 84, of: (row) => LEVELS[levelOf(row)] },
    { key: "Step", width: 60, of: (row) => stepOf(tables[tableOf[row]]) },
    { key: "Rank", width: 56, of: (row) => String(tables[tableOf[row]].rank) },
    { key: "Value", width: 400, of: nameOf },
    { key: "Operator", width: 300, of: operatorName },
    { key: "Module", width: 260, of: moduleOf },
    { key: "Direction", width: 110, of: (row) => DIRECTIONS[directionOf(row)] },
    ...headers.map((header) => ({ key: header, width: widthOf(header), of: ofHeader(header) })),
  ];
  function widthOf(header) {
    if (/Name|Stack|Err_message/.test(header)) return 420;
    if (/Source/.test(header)) return 250;
    return /dtype|shape/i.test(header) ? 130 : 105;
  }
  const hasDeviation = headers.includes("Deviation");
  const wanted = ["Level", ...(many("step") || many("graph") ? ["Step"] : []), ...(many("rank") ? ["Rank"] : []), "Value", "Difference",
    "Deviation", "Bound", "Cosine", ...(hasDeviation ? [] : ["MaxAbsErr", "MaxRelativeErr", "NPU MD5", "BENCH MD5"]), "NPU Dtype",
    "NPU Tensor Shape", "Err_message", "Bound Source"].filter((key) => all.some((column) => column.key === key));
  // What is shown unasked comes first, in this order.
  const place = (column) => (wanted.includes(column.key) ? wanted.indexOf(column.key) : wanted.length);
  const columns = all.map((column, at) => [place(column), at, column]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((entry) => entry[2]);

  const state = { q: "", level: new Set([0, 1, 2, 3]), rank: "", step: "", dir: "", module: "", sort: "", down: false, row: -1,
    columns: new Set(wanted) };
  let shown = new Int32Array(0);

  // The fragment of the address holds the filters, so that a view can be linked to.
  function readFragment() {
    const given = new URLSearchParams(location.hash.slice(1));
    const text = (key) => given.get(key) ?? "";
    Object.assign(state, { q: text("q"), rank: text("rank"), step: text("step"), dir: text("dir"), module: text("module"), sort: text("sort") });
    state.down = given.get("order") === "down";
    const levels = text("level").split(",").map((level) => LEVELS.indexOf(level)).filter((level) => level >= 0);
    state.level = new Set(levels.length ? levels : [0, 1, 2, 3]);
    const names = given.get("columns")?.split(",").filter((key) => columns.some((column) => column.key === key));
    state.columns = new Set(names?.length ? names : wanted);
    const row = Number.parseInt(text("row"), 10);
    state.row = row >= 0 && row < total ? row : -1;
  }
  function writeFragment() {
    const given = new URLSearchParams();
    for (const key of ["q", "rank", "step", "dir", "module", "sort"]) if (state[key]) given.set(key, state[key]);
    if (state.sort && state.down) given.set("order", "down");
    if (state.level.size < 4) given.set("level", [...state.level].map((level) => LEVELS[level]).join(","));
    if (state.row >= 0) given.set("row", state.row);
    const chosen = [...state.columns];
    if (chosen.length !== wanted.length || chosen.some((key) => !wanted.includes(key))) given.set("columns", chosen.join(","));
    try { history.replaceState(null, "", "#" + given); } catch { /* a browser may refuse it for files */ }
  }

  // A search looks through the texts that rows share, and through the rows.
  function withWords(rows) {
    const words = state.q.split(/\s+/).filter(Boolean);
    for (const word of words) {
      const pattern = new RegExp(word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
      const hits = texts.map((text) => pattern.test(text));
      const isShared = hits.includes(true);
      const ownHits = LEVELS.map((level) => pattern.test(level));
      rows = rows.filter((row) => {
        if (ownHits[levelOf(row)] || hits[tables[tableOf[row]].modules[operatorAt[row]]] || pattern.test(operatorName(row))) return true;
        // The whole line at once says quickly of most rows that no cell has the word.
        if (!pattern.test(lineOf[row]) && !(isShared && lineOf[row].includes(BETWEEN + "@"))) return false;
        return cellsOf(row).some((cell) => pattern.test(cell));
      });
    }
    return rows;
  }
  function isInside(module, prefix) {
    const bare = module.replace(/^(Module|Cell)\./, "");
    return module.startsWith(prefix) || bare.startsWith(prefix);
  }
  function filter() {
    const tableFits = tables.map((table) => (!state.rank || String(table.rank) === state.rank) && (!state.step || stepOf(table) === state.step));
    const direction = DIRECTIONS.indexOf(state.dir);
    let fits = null;
    if (state.module) {
      const known = new Map();
      fits = (row) => {
        const both = tableOf[row] * 4194304 + operatorAt[row];
        if (!known.has(both)) known.set(both, isInside(operatorName(row), state.module) || isInside(moduleOf(row), state.module));
        return known.get(both);
      };
    }
    const rows = new Int32Array(total);
    let count = 0;
    for (let row = 0; row < total; row += 1) {
      if (!state.level.has(levelOf(row)) || !tableFits[tableOf[row]]) continue;
      if (direction >= 0 && directionOf(row) !== direction) continue;
      if (fits && !fits(row)) continue;
      rows[count] = row;
      count += 1;
    }
    shown = sorted(withWords(rows.subarray(0, count)));
  }
  function sorted(rows) {
    const column = columns.find((one) => one.key === state.sort);
    if (!column) return rows;
    const number = (text) => (/^\s*-?inf/i.test(text) ? (text.includes("-") ? -Infinity : Infinity) : Number.parseFloat(text));
    const keys = new Map();
    let numeric = true;
    for (const row of rows) {
      const text = column.of(row);
      keys.set(row, text);
      if (text && text !== "N/A" && Number.isNaN(number(text))) numeric = false;
    }
    if (column.key === "Level") for (const row of rows) keys.set(row, String(levelOf(row)));
    if (numeric || column.key === "Level") for (const row of rows) keys.set(row, number(keys.get(row)));
    const order = state.down ? -1 : 1;
    const before = (one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      // What has no number comes last either way.
      if (a !== a || b !== b) return (a !== a) - (b !== b) || one - other;
      return a === b ? one - other : (a < b ? -order : order);
    };
    return Int32Array.from(Array.from(rows).sort(before));
  }

  // Only the rows in sight are in the document.
  const view = id("view");
  const [head, body] = [id("rows").tHead, id("rows").tBodies[0]];
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const chosenColumns = () => columns.filter((column) => state.columns.has(column.key));
  function drawHead() {
    const line = element("tr");
    let width = 0;
    for (const column of chosenColumns()) {
      const th = element("th");
      th.scope = "col";
      th.style.width = column.width + "px";
      width += column.width;
      const isSorted = state.sort === column.key;
      th.setAttribute("aria-sort", isSorted ? (state.down ? "descending" : "ascending") : "none");
      const button = element("button", column.key + (isSorted ? (state.down ? " ▼" : " ▲") : ""));
      button.type = "button";
      button.title = "sort by " + column.key;
      button.addEventListener("click", () => {
        // Up, down, and back to the order of execution.
        if (!isSorted) Object.assign(state, { sort: column.key, down: true });
        else if (state.down) state.down = false;
        else state.sort = "";
        const at = [...line.children].indexOf(th);
        update();
        head.rows[0].children[at].firstChild.focus();
      });
      th.append(button);
      line.append(th);
    }
    id("rows").style.width = width + "px";
    head.replaceChildren(line);
  }
  function gap(rows, span) {
    const line = element("tr", undefined, "gap");
    line.setAttribute("aria-hidden", "true");
    line.style.height = rows * ROW + "px";
    const td = element("td");
    td.colSpan = span;
    line.append(td);
    return line;
  }
  function drawRows() {
    const first = Math.max(0, Math.floor(view.scrollTop / ROW) - BEYOND);
    const last = Math.min(shown.length, Math.ceil((view.scrollTop + view.clientHeight) / ROW) + BEYOND);
    const chosen = chosenColumns();
    const lines = [gap(first, chosen.length)];
    for (let at = first; at < last; at += 1) lines.push(drawRow(shown[at], at, chosen));
    lines.push(gap(shown.length - last, chosen.length));
    body.replaceChildren(...lines);
  }
  function drawRow(row, at, chosen) {
    const line = element("tr");
    line.dataset.row = row;
    line.setAttribute("aria-rowindex", at + 2);
    line.setAttribute("aria-selected", row === state.row);
    for (const column of chosen) {
      const text = column.key === "Err_message" ? notesOf(column.of(row)).join("; ") : column.of(row);
      const td = element("td", text.length > 300 ? text.slice(0, 300) + "…" : text);
      if (column.key === "Level" || column.key === "Result") td.className = "level " + text;
      else if (text.length > 14) td.title = text.slice(0, 2000);
      line.append(td);
    }
    return line;
  }
  let isDue = false;
  view.addEventListener("scroll", () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      drawRows();
    });
  });
  addEventListener("resize", () => drawRows());

  function update() {
    filter();
    drawHead();
    view.scrollTop = 0;
    drawRows();
    const errors = shown.reduce((sum, row) => sum + (levelOf(row) === 2), 0);
    id("count").textContent = shown.length.toLocaleString("en") + " of " + total.toLocaleString("en") + " rows, " +
      errors.toLocaleString("en") + (errors === 1 ? " error" : " errors");
    id("rows").setAttribute("aria-rowcount", shown.length + 1);
    for (const button of ["first", "previous", "next"]) id(button).disabled = errors === 0;
    writeFragment();
  }

  // One row in full.
  function choose(row, isToSee) {
    state.row = row;
    const at = shown.indexOf(row);
    if (isToSee && at >= 0) {
      const top = at * ROW;
      if (top < view.scrollTop || top + 3 * ROW > view.scrollTop + view.clientHeight) view.scrollTop = Math.max(0, top - view.clientHeight / 3);
    }
    drawRows();
    drawDetail(row);
    writeFragment();
  }
  function lines(pairs, titles) {
    const table = element("table");
    const top = element("tr");
    titles.forEach((title) => top.append(element("th", title)));
    table.createTHead().append(top);
    const inside = table.createTBody();
    for (const [label, ...values] of pairs) {
      const line = element("tr", undefined, values.length === 2 && values[0] !== values[1] ? "differs" : "");
      line.append(element("th", label), ...values.map((value) => element("td", value)));
      inside.append(line);
    }
    return table;
  }
  function notesOf(text) {
    try { return JSON.parse(text); } catch { return text ? [text] : []; }
  }
  function stackOf(row) {
    // The first value of an operator has its stack.
    const stack = ofHeader("NPU_Stack_Info");
    for (let at = row; at >= 0 && tableOf[at] === tableOf[row] && operatorOf(at) === operatorOf(row); at -= 1) {
      if (stack(at) && stack(at) !== "N/A") return stack(at);
    }
    return "";
  }
  function drawDetail(row) {
    const detail = id("detail");
    detail.hidden = row < 0;
    if (row < 0) return detail.replaceChildren();
    const close = element("button", "Close", "close");
    close.type = "button";
    close.addEventListener("click", () => choose(-1, false));
    const title = element("h3", nameOf(row));
    const table = tables[tableOf[row]];
    const where = element("p", undefined, "soft");
    where.append(element("span", LEVELS[levelOf(row)], "level " + LEVELS[levelOf(row)]), " · step " + stepOf(table) + ", rank " + table.rank +
      " · operator " + operatorName(row) + (moduleOf(row) ? " · in " + moduleOf(row) : ""));
    const pairs = [];
    const single = [];
    for (const header of table.headers) {
      const twin = header.replace(/^NPU /, header === "NPU MD5" ? "BENCH " : "Bench ");
      if (twin !== header && table.headers.includes(twin)) pairs.push([header.slice(4), ofHeader(header)(row), ofHeader(twin)(row)]);
      else if (!/^bench |_Stack_Info|Err_message/i.test(header)) single.push([header, ofHeader(header)(row)]);
    }
    const two = element("div", undefined, "columns");
    two.append(lines(pairs, ["", "target", "golden"]), lines(single, ["", "measured"]));
    const parts = [close, title, where];
    const notes = notesOf(ofHeader("Err_message")(row));
    if (notes.length) {
      const list = element("ul");
      notes.forEach((note) => list.append(element("li", String(note))));
      parts.push(list);
    }
    parts.push(two);
    const ulps = ulpsOf(row);
    if (ulps) parts.push(element("h3", "Elements by units in the last place"), histogram(ulps.split(" ").map(Number)));
    const stack = stackOf(row);
    if (stack) parts.push(element("h3", "Called from (target, innermost first)"), element("pre", stack));
    detail.replaceChildren(...parts);
  }
  function histogram(counts) {
    const chart = element("div", undefined, "ulps");
    chart.setAttribute("role", "img");
    const names = Array.from({ length: 17 }, (_, bin) => (bin === 0 ? "0" : bin === 16 ? ">16384" : "≤" + 2 ** (bin - 1)));
    chart.setAttribute("aria-label", counts.map((count, bin) => count + " elements " + names[bin]).join(", "));
    const largest = Math.max(...counts);
    names.forEach((name, bin) => {
      const count = counts[bin] ?? 0;
      const column = element("div", count ? count.toLocaleString("en") : "");
      column.title = count + " elements are apart by " + name + " ULP";
      const bar = element("i");
      bar.style.height = Math.round((count / largest) * 50) + "px";
      column.append(bar, element("span", name));
      chart.append(column);
    });
    return chart;
  }

  // What the reader does.
  function goToError(direction) {
    if (!shown.length) return;
    const here = shown.indexOf(state.row);
    let at = direction === 0 ? 0 : here < 0 ? (direction > 0 ? 0 : shown.length - 1) : here + direction;
    const by = direction < 0 ? -1 : 1;
    while (at >= 0 && at < shown.length && levelOf(shown[at]) !== 2) at += by;
    if (at >= 0 && at < shown.length) choose(shown[at], true);
  }
  function move(by) {
    const at = Math.min(shown.length - 1, Math.max(0, shown.indexOf(state.row) + by));
    if (shown.length) choose(shown[at], true);
  }
  body.addEventListener("click", (event) => {
    const line = event.target.closest("tr[data-row]");
    if (line) choose(Number(line.dataset.row), false);
  });
  view.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (!by || event.target !== view) return;
    event.preventDefault();
    move(by);
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && state.row >= 0) return choose(-1, false);
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "n") goToError(1);
    else if (event.key === "p") goToError(-1);
    else if (event.key === "/") {
      event.preventDefault();
      id("q").focus();
    }
  });
  id("first").addEventListener("click", () => goToError(0));
  id("previous").addEventListener("click", () => goToError(-1));
  id("next").addEventListener("click", () => goToError(1));
  id("clear").addEventListener("click", () => {
    Object.assign(state, { q: "", level: new Set([0, 1, 2, 3]), rank: "", step: "", dir: "", module: "", sort: "" });
    showFilters();
    update();
  });
  id("filters").addEventListener("submit", (event) => event.preventDefault());
  let waiting = 0;
  for (const key of ["q", "module"]) {
    id(key).addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        state[key] = id(key).value.trim();
        update();
      }, 120);
    });
  }
  for (const key of ["rank", "step", "dir"]) {
    id(key).addEventListener("change", () => {
      state[key] = id(key).value;
      update();
    });
  }

  function options(key, values) {
    const all = element("option", "all");
    all.value = "";
    id(key).replaceChildren(all, ...values.map((value) => element("option", value)));
    id(key).closest("label").hidden = values.length < 2;
  }
  function checkbox(label, isChecked, changed) {
    const line = element("label");
    const box = element("input");
    box.type = "checkbox";
    box.checked = isChecked();
    box.addEventListener("change", () => changed(box.checked));
    line.append(box, label);
    return line;
  }
  function showFilters() {
    for (const key of ["q", "rank", "step", "dir", "module"]) id(key).value = state[key];
    const levels = LEVELS.map((level, number) => {
      const label = element("span", level, "level " + level);
      label.append(" " + data.counts[number].toLocaleString("en"));
      return checkbox(label, () => state.level.has(number), (isOn) => {
        state.level[isOn ? "add" : "delete"](number);
        update();
      });
    });
    id("levels").replaceChildren(id("levels").querySelector("legend"), levels[2], levels[1], levels[3], levels[0]);
    id("chooser").replaceChildren(...columns.map((column) => checkbox(column.key, () => state.columns.has(column.key), (isOn) => {
      state.columns[isOn ? "add" : "delete"](column.key);
      drawHead();
      drawRows();
      writeFragment();
    })));
  }
  function start() {
    readFragment();
    showFilters();
    update();
    if (state.row >= 0) choose(state.row, true);
    else drawDetail(-1);
  }
  options("rank", [...new Set(tables.map((table) => String(table.rank)))]);
  options("step", [...new Set(tables.map(stepOf))]);
  options("dir", DIRECTIONS);
  const modules = new Set();
  for (let row = 0; row < total && modules.size < 400; row += 1) if (moduleOf(row)) modules.add(moduleOf(row));
  id("modules").append(...[...modules].map((module) => {
    const option = element("option");
    option.value = module.replace(/\.(forward|backward|parameters_grad)\.\d+$/, "").replace(/^(Module|Cell)\./, "");
    return option;
  }));
  addEventListener("hashchange", () => {
    start();
    id("values").scrollIntoView();
  });
  start();
})();
