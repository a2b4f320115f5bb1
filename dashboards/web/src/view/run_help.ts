// What the help of a run's page tells.

import { Help } from "../shared/keys";

export function runHelp(): Help {
  return new Help(
    [
      ["/", "filter tensors by name: words in any order"],
      ["j  n", "next alert: what it names is shown, in the heat map or among the curves"],
      ["k  p", "the alert before"],
      ["Esc", "clear the filter and the choice"],
      ["g", "heat map by layer or by tensor"],
      ["c", "heat map's colours: change against the usual value (the row's median), or the value"],
      ["←  →  ↑  ↓", "in the heat map or a curve that has the focus: go from step to step, from row to row"],
      ["Enter", "in the heat map: open a layer, select a tensor"],
    ],
    [
      ["drag", "on a curve: those steps only, on all curves"],
      ["double click", "all steps again"],
      ["hover", "values of that step; on a mark, which alerts"],
      ["click", "on a layer: its tensors; on a cell: the curve of its row"],
    ],
  );
}
