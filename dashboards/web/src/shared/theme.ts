// Dark or light: the system's choice, unless the reader chooses. All colours are defined in style.css.

import { el } from "./dom";

export type Theme = "dark" | "light";

const KEY = "trainmon-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners: (() => void)[] = [];

/** The stored choice: a page in a file or frame may have no storage. */
function stored(): Theme | null {
  try {
    const theme = localStorage.getItem(KEY);
    return theme === "dark" || theme === "light" ? theme : null;
  } catch {
    return null;
  }
}

export function current(): Theme {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "dark" || chosen === "light") return chosen;
  return system.matches ? "dark" : "light";
}

export function start(): void {
  const theme = stored();
  if (theme) document.documentElement.dataset.theme = theme;
  system.addEventListener("change", told);
  window.addEventListener("beforeprint", () => printing(true));
  window.addEventListener("afterprint", () => printing(false));
}

export function toggle(): void {
  const theme: Theme = current() === "dark" ? "light" : "dark";
  const isSystems = theme === (system.matches ? "dark" : "light");
  if (isSystems) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    // A reader who returns to the system's choice follows it from then on.
    if (isSystems) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // The choice then applies until the page is closed.
  }
  told();
}

/** Registers a function that is called whenever colours change. */
export function onChange(listener: () => void): void {
  listeners.push(listener);
}

/** A colour of the theme: `accent`, `line`. */
export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function told(): void {
  for (const listener of listeners) listener();
}

let before: string | undefined;

/** Prints with the light theme. */
function printing(begins: boolean): void {
  const { dataset } = document.documentElement;
  if (begins) {
    before = dataset.theme;
    dataset.theme = "light";
  } else if (before === undefined) {
    delete dataset.theme;
  } else {
    dataset.theme = before;
  }
  told();
}

/** The element of the tooltip at the pointer. */
const tip = el("div", { class: "tip", role: "tooltip" });

export function showTip(x: number, y: number, ...lines: (Node | string)[]): void {
  if (!tip.isConnected) document.body.append(tip);
  tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
  tip.classList.add("shown");
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 14 + width > window.innerWidth ? x - 14 - width : x + 14;
  const top = y + 14 + height > window.innerHeight ? y - 14 - height : y + 14;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

export function hideTip(): void {
  tip.classList.remove("shown");
}
