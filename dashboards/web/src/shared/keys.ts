// The keyboard, and the dialog that lists the keys.

import { el } from "./dom";

/** A line of the help: keys or pointer actions, and their effect. */
export type HelpLine = [what: string, meaning: string];

export interface Keyboard {
  /** The action of each key, by its name in an event. */
  actions: Record<string, () => void>;
  escape(): void;
}

export class Help {
  readonly element: HTMLDialogElement;

  /** Adds the lines that every page has at the end. */
  constructor(keys: HelpLine[], pointer: HelpLine[]) {
    const rows = (all: HelpLine[]) =>
      all.flatMap(([key, meaning]) => [
        el("dt", {}, ...key.split(/\s+(?!click)/).map((name) => el("kbd", { text: name }))),
        el("dd", { text: meaning }),
      ]);
    this.element = el(
      "dialog",
      { class: "help" },
      el("h2", { text: "Keys" }),
      el("dl", {}, ...rows([...keys, ["t", "toggle dark and light"], ["?", "show this help"]])),
      ...(pointer.length > 0 ? [el("h2", { text: "Pointer" }), el("dl", {}, ...rows(pointer))] : []),
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

/** Focuses a field like the key `/`: typing replaces its content. */
export function goTo(field: HTMLInputElement): void {
  field.focus();
  field.select();
}

export function listen(keyboard: Keyboard, help: Help): void {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    const isTyping = target instanceof HTMLInputElement || target instanceof HTMLSelectElement;
    if (event.key === "Escape") {
      // The browser closes the dialog.
      if (help.element.open) return;
      if (target instanceof HTMLInputElement) target.blur();
      keyboard.escape();
      return;
    }
    if (isTyping) return;
    const act = event.key === "?" ? () => help.toggle() : keyboard.actions[event.key];
    if (!act || (help.element.open && event.key !== "?")) return;
    event.preventDefault();
    act();
  });
}
