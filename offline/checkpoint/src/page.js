"use strict";
const rows = [...document.querySelectorAll("#tensors tbody tr")];
const [search, verdict, count] = ["search", "verdict", "count"].map((id) => document.getElementById(id));
const texts = rows.map((row) => row.textContent.toLowerCase());
function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, at) => {
    const isMeant = words.every((word) => texts[at].includes(word))
      && (verdict.value === "" || row.cells[1].textContent === verdict.value);
    row.hidden = !isMeant;
    shown += Number(isMeant);
  });
  count.textContent = `${shown} of ${rows.length}`;
}
search.addEventListener("input", show);
verdict.addEventListener("change", show);
show();
