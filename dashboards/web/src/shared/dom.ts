// Creates elements without markup: texts are never parsed as HTML.

type Child = Node | string | null | undefined | false;

interface Properties {
  id?: string;
  class?: string;
  title?: string;
  role?: string;
  text?: string;
  data?: Record<string, string>;
  aria?: Record<string, string>;
}

export function el<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  if (properties.id) element.id = properties.id;
  if (properties.class) element.className = properties.class;
  if (properties.title) element.title = properties.title;
  if (properties.role) element.setAttribute("role", properties.role);
  if (properties.text !== undefined) element.textContent = properties.text;
  for (const [name, value] of Object.entries(properties.data ?? {})) element.dataset[name] = value;
  for (const [name, value] of Object.entries(properties.aria ?? {})) element.setAttribute(`aria-${name}`, value);
  element.append(
    ...children.filter((child): child is Node | string => child instanceof Node || typeof child === "string"),
  );
  return element;
}

export function clickable(properties: Properties, act: () => void, ...children: Child[]): HTMLButtonElement {
  const element = el("button", properties, ...children);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

export function button(text: string, title: string, act: () => void, className = "quiet"): HTMLButtonElement {
  return clickable({ class: className, title, text }, act);
}

export function select(title: string, choose: (value: string) => void): HTMLSelectElement {
  const element = el("select", { title, aria: { label: title } });
  element.addEventListener("change", () => choose(element.value));
  return element;
}

/** Sets the options, keeping the choice if it is still one of them. */
export function setOptions(element: HTMLSelectElement, options: { value: string; text: string }[]): void {
  const key = JSON.stringify(options);
  if (element.dataset.options === key) return;
  element.dataset.options = key;
  const { value } = element;
  element.replaceChildren(
    ...options.map(({ value, text }) => {
      const option = el("option", { text });
      option.value = value;
      return option;
    }),
  );
  if (options.some((option) => option.value === value)) element.value = value;
}

/** Replaces the content of an element; a focused button gets the focus again, by its position. */
export function replaceContent(element: HTMLElement, content: HTMLElement): void {
  const buttons = () => [...element.querySelectorAll("button")];
  const focused = buttons().findIndex((button) => button === document.activeElement);
  element.replaceChildren(content);
  if (focused >= 0) buttons()[focused]?.focus({ preventScroll: true });
}
