// Colours of a heat map: viridis for magnitudes, blue over grey to orange for changes. Both are distinguishable for
// colour-blind readers, and the first also in grey print.

type Stop = readonly [number, number, number];

const MAGNITUDE: readonly Stop[] = [
  [68, 1, 84],
  [72, 40, 120],
  [62, 74, 137],
  [49, 104, 142],
  [38, 130, 142],
  [31, 158, 137],
  [53, 183, 121],
  [110, 206, 88],
  [181, 222, 43],
  [253, 231, 37],
];

const CHANGE_LIGHT: readonly Stop[] = [
  [5, 82, 153],
  [84, 148, 201],
  [172, 205, 228],
  [240, 240, 238],
  [250, 203, 150],
  [230, 134, 50],
  [166, 74, 0],
];

const CHANGE_DARK: readonly Stop[] = [
  [120, 196, 255],
  [58, 130, 190],
  [34, 72, 106],
  [36, 41, 46],
  [112, 66, 22],
  [196, 112, 30],
  [255, 178, 84],
];

/** 256 colours from the smallest to the largest, as pixels of an image: red, green, blue, opaque. */
export function palette(isChange: boolean, isDark: boolean): Uint32Array {
  const stops = isChange ? (isDark ? CHANGE_DARK : CHANGE_LIGHT) : MAGNITUDE;
  return Uint32Array.from({ length: 256 }, (_, index) => {
    const place = (index / 255) * (stops.length - 1);
    const from = stops[Math.floor(place)] ?? MAGNITUDE[0];
    const to = stops[Math.ceil(place)] ?? from;
    const share = place - Math.floor(place);
    const mix = (channel: 0 | 1 | 2) =>
      Math.round((from?.[channel] ?? 0) + share * ((to?.[channel] ?? 0) - (from?.[channel] ?? 0)));
    return pack(mix(0), mix(1), mix(2));
  });
}

/** The bytes of a pixel as a number, on a little-endian machine. */
function pack(red: number, green: number, blue: number): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** `#rrggbb` as a pixel. */
export function pixel(color: string): number {
  const value = Number.parseInt(color.replace("#", ""), 16);
  return pack((value >> 16) & 255, (value >> 8) & 255, value & 255);
}

export function css(pixel: number): string {
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}
