// The keyboard, and the dialog that tells what keys there are.

import { el } from "./dom";

/** A line of the help: keys, or what the pointer does, and what comes of it. */
export type HelpLine = [what: string, meaning: string];

export interface Keyboard {
  /** What a key does, by the name it has in an event. */
  actions: Record<string, () => void>;
  escape(): void;
}

export class Help {
  readonly element: HTMLDialogElement;

  /** The lines every page has come last. */
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
      el("dl", {}, ...rows([...keys, ["t", "dark or light"], ["?", "this help"]])),
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

/** Goes to a field as the key `/` does: what stands in it is replaced by what is typed. */
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
