// The report of a comparison of checkpoints: its rows are in the document, and rows that do not match are hidden.

import { matcher } from "../shared/filter";
import { goTo } from "../shared/keys";
import { frame } from "./frame";

const rows = [...document.querySelectorAll<HTMLTableRowElement>("#tensors tbody tr")];
const texts = rows.map((row) => row.textContent ?? "");
const search = document.querySelector<HTMLInputElement>("#search");
const verdict = document.querySelector<HTMLSelectElement>("#verdict");
const count = document.getElementById("count");

function show(): void {
  const matches = matcher(search?.value ?? "");
  const wanted = verdict?.value ?? "";
  let shown = 0;
  rows.forEach((row, at) => {
    const isMeant = matches(texts[at] ?? "") && (wanted === "" || row.cells[1]?.textContent === wanted);
    row.hidden = !isMeant;
    shown += Number(isMeant);
  });
  if (count) count.textContent = `${shown} of ${rows.length}`;
}

search?.addEventListener("input", show);
verdict?.addEventListener("change", show);
frame({
  actions: {
    "/": () => {
      if (search) goTo(search);
    },
  },
  escape: () => {
    if (search) search.value = "";
    if (verdict) verdict.value = "";
    show();
  },
  keys: [
    ["/", "search for words in any cell"],
    ["Esc", "show all tensors"],
  ],
  pointer: [],
});
show();
