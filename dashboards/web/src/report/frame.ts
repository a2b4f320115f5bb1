// The frame of every report: the theme switch and the help of keys.

import { button, el } from "../shared/dom";
import { Help, type HelpLine, type Keyboard, listen } from "../shared/keys";
import * as theme from "../shared/theme";

/** The report's own keys besides `t` and `?`. */
export interface ReportKeys extends Keyboard {
  keys: HelpLine[];
  pointer: HelpLine[];
}

export function frame(report: ReportKeys): void {
  theme.start();
  const help = new Help(report.keys, report.pointer);
  const controls = el(
    "div",
    { class: "controls" },
    button("◐", "Toggle dark and light (t)", () => theme.toggle(), "icon"),
    button("?", "Show keys (?)", () => help.toggle(), "icon"),
  );
  document.querySelector("main")?.prepend(controls);
  document.body.append(help.element);
  listen({ actions: { ...report.actions, t: () => theme.toggle() }, escape: report.escape }, help);
}
