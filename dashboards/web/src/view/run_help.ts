// What the help of a run's page tells.

import { Help } from "../shared/keys";

export function runHelp(): Help {
  return new Help(
    [
      ["/", "filter tensors by name: words in any order"],
      ["j  n", "next older alert, marked on all curves and the heat map"],
      ["k  p", "next newer alert"],
      ["Esc", "clear the filter and the choice"],
      ["g", "heat map by tensor or by layer"],
      ["c", "heat map's colours: value, or change against the row's median"],
    ],
    [
      ["drag", "on a curve: those steps only, on all curves"],
      ["double click", "all steps again"],
      ["hover", "values of that step; on a mark, which alerts"],
    ],
  );
}
