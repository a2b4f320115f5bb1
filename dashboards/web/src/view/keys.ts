// The keyboard, and the page that tells what keys there are.

import { el } from "../dom";

export interface Keys {
  filter(): void;
  older(): void;
  newer(): void;
  clear(): void;
  theme(): void;
  grouping(): void;
  coloring(): void;
}

const HELP: [string, string][] = [
  ["/", "filter tensors by name: words in any order"],
  ["j  n", "next older alert, marked on all curves and the heat map"],
  ["k  p", "next newer alert"],
  ["Esc", "clear the filter and the choice"],
  ["g", "heat map by tensor or by layer"],
  ["c", "heat map's colours: value, or change against the row's median"],
  ["t", "dark or light"],
  ["?", "this help"],
];

const POINTER: [string, string][] = [
  ["drag", "on a curve: those steps only, on all curves"],
  ["double click", "all steps again"],
  ["hover", "values of that step; on a mark, which alerts"],
];

export class Help {
  readonly element: HTMLDialogElement;

  constructor() {
    const rows = (all: [string, string][]) =>
      all.flatMap(([key, meaning]) => [
        el("dt", {}, ...key.split(/\s+(?!click)/).map((name) => el("kbd", { text: name }))),
        el("dd", { text: meaning }),
      ]);
    this.element = el(
      "dialog",
      { class: "help" },
      el("h2", { text: "Keys" }),
      el("dl", {}, ...rows(HELP)),
      el("h2", { text: "Pointer" }),
      el("dl", {}, ...rows(POINTER)),
    );
    this.element.addEventListener("click", (event) => {
      if (event.target === this.element) this.element.close();
    });
  }

  toggle(): void {
    if (this.element.open) this.element.close();
    else this.element.showModal();
  }
}

export function listen(keys: Keys, help: Help): void {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    const isTyping = target instanceof HTMLInputElement || target instanceof HTMLSelectElement;
    if (event.key === "Escape") {
      // The browser closes the dialog.
      if (help.element.open) return;
      if (target instanceof HTMLInputElement) target.blur();
      keys.clear();
      return;
    }
    if (isTyping) return;
    const actions: Record<string, () => void> = {
      "/": () => keys.filter(),
      j: () => keys.older(),
      n: () => keys.older(),
      k: () => keys.newer(),
      p: () => keys.newer(),
      g: () => keys.grouping(),
      c: () => keys.coloring(),
      t: () => keys.theme(),
      "?": () => help.toggle(),
    };
    const act = actions[event.key];
    if (!act || (help.element.open && event.key !== "?")) return;
    event.preventDefault();
    act();
  });
}
