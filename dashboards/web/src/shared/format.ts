// Numbers, times and sizes as people read them: few digits, the same width where they stand in columns.

/** Four significant digits, with an exponent where that is shorter. */
export function number(value: number | null): string {
  if (value === null) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "−Inf";
  if (value === 0) return "0";
  const magnitude = Math.abs(value);
  const text =
    magnitude >= 1e5 || magnitude < 1e-3
      ? value.toExponential(magnitude >= 1e5 && magnitude < 1e6 ? 2 : 2).replace("e+", "e")
      : String(Number(value.toPrecision(4)));
  return text.replaceAll("-", "−");
}

export function integer(value: number): string {
  return value.toLocaleString("en-US").replaceAll(",", "\u2009");
}

export function percent(share: number): string {
  const value = 100 * share;
  return `${value < 0.1 ? value.toFixed(2) : value < 10 ? value.toFixed(1) : value.toFixed(0)}\u2009%`;
}

const TIMES: [number, string][] = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [0, "ns"],
];

export function seconds(value: number | null): string {
  if (value === null) return "–";
  if (!Number.isFinite(value)) return number(value);
  if (value >= 7200) return `${(value / 3600).toFixed(1)}\u2009h`;
  if (value >= 120) return `${(value / 60).toFixed(1)}\u2009min`;
  const [unit, name] = TIMES.find(([unit]) => value >= unit && unit > 0) ?? [1e-9, "ns"];
  return `${Number((value / unit).toPrecision(3))}\u2009${name}`;
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let index = 0;
  let amount = value;
  while (amount >= 1000 && index < units.length - 1) {
    amount /= 1000;
    index += 1;
  }
  return `${Number(amount.toPrecision(3))}\u2009${units[index]}`;
}

/** `1 240` or, of a bin of several steps, `1 240–1 247`. */
export function steps(first: number, last: number): string {
  return first === last ? integer(first) : `${integer(first)}–${integer(last)}`;
}

/** How many times the one is the other: `×3.2`, `÷4.1`. */
export function factor(value: number, usual: number | null): string {
  if (usual === null || usual === 0 || !Number.isFinite(value)) return "";
  const ratio = value / usual;
  if (ratio === 0) return "→0";
  return ratio >= 1 ? `×${number(Number(ratio.toPrecision(3)))}` : `÷${number(Number((1 / ratio).toPrecision(3)))}`;
}
