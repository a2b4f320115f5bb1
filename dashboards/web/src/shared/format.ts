// Numbers, times and sizes as people write them: 17.6, 0.853, 1.2e-7, 1,240. Programs read copied values too.

/** The number of significant digits that distinguish a value from its usual one. */
const DIGITS = 3;

/** A few significant digits, all digits before the point, and an exponent if that is shorter. */
export function number(value: number | null, digits = DIGITS): string {
  if (value === null) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value === 0) return "0";
  const magnitude = Math.abs(value);
  if (magnitude >= 1e6 || magnitude < 1e-3) {
    const [mantissa = "", exponent = ""] = value.toExponential(digits - 1).split("e");
    return `${Number(mantissa)}e${Number(exponent)}`;
  }
  if (magnitude >= 1000) return integer(Math.round(value));
  const rounded = Number(value.toPrecision(digits));
  return Math.abs(rounded) >= 1000 ? integer(rounded) : String(rounded);
}

/** A loss or an accuracy, whose fourth digit matters. */
export function precise(value: number | null): string {
  return number(value, 4);
}

/** The labels of an axis, with as few digits as distinguish them. */
export function labels(values: (number | null)[], show: (value: number, digits: number) => string): string[] {
  const all = (digits: number) => values.map((value) => (value === null ? "" : show(value, digits)));
  for (let digits = 2; digits < 9; digits += 1) {
    const texts = all(digits);
    const shown = texts.filter(Boolean);
    if (new Set(shown).size === shown.length) return texts;
  }
  return all(9);
}

export function integer(value: number): string {
  return value.toLocaleString("en-US");
}

/** `1 alert`, `2 alerts`, `1,240 steps`. */
export function count(value: number, one: string, many = `${one}s`): string {
  return `${integer(value)} ${value === 1 ? one : many}`;
}

export function percent(share: number): string {
  const value = 100 * share;
  return `${value < 0.1 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : value.toFixed(0)}%`;
}

const TIMES: [number, string][] = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [0, "ns"],
];

export function seconds(value: number | null, digits = DIGITS): string {
  if (value === null) return "–";
  if (value === 0) return "0 s";
  if (!Number.isFinite(value)) return number(value);
  if (value >= 7200) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 120) return `${(value / 60).toFixed(1)} min`;
  const [unit, name] = TIMES.find(([unit]) => value >= unit && unit > 0) ?? [1e-9, "ns"];
  return `${Number((value / unit).toPrecision(digits))} ${name}`;
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let index = 0;
  let amount = value;
  while (amount >= 1000 && index < units.length - 1) {
    amount /= 1000;
    index += 1;
  }
  return `${Number(amount.toPrecision(3))} ${units[index]}`;
}

/** `1,240`, or `1,240–1,247` for a bin of several steps. */
export function steps(first: number, last: number): string {
  return first === last ? integer(first) : `${integer(first)}–${integer(last)}`;
}

/** The factor between a value and its usual one: `×3.2`, `÷4.1`. */
export function factor(value: number, usual: number | null): string {
  if (usual === null || usual === 0 || !Number.isFinite(value)) return "";
  const ratio = value / usual;
  if (ratio === 0) return "→ 0";
  return ratio >= 1 ? `×${number(ratio)}` : `÷${number(1 / ratio)}`;
}

/** A name in a sentence: `grad_reduced` as `grad reduced`. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}
