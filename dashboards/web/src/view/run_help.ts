// The help of a run's page.

import { Help } from "../shared/keys";

export function runHelp(): Help {
  return new Help(
    [
      ["/", "filter tensors by words in their names, in any order"],
      ["j  n", "select the next alert and show its tensor or curve"],
      ["k  p", "select the previous alert"],
      ["Esc", "clear the filter and the selection"],
      ["g", "toggle between layers and tensors in the heat map"],
      ["c", "toggle the heat map's colours: change from the usual value (the row's median), or the value"],
      ["←  →  ↑  ↓", "move between steps and rows in the focused heat map or curve"],
      ["Enter", "open a layer or select a tensor in the heat map"],
    ],
    [
      ["drag", "on a curve: zoom all curves to these steps"],
      ["double click", "show all steps"],
      ["hover", "show the values of a step, or the alerts of a mark"],
      ["click", "on a layer: show its tensors; on a cell: show the curve of its row"],
    ],
  );
}
