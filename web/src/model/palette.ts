// One colour per group, the same on every page. The first ten follow the
// Okabe-Ito family, which people with colour-vision deficiencies can tell
// apart, darkened or lightened until each has 3:1 against the map's ground.
// More groups take golden-angle hues in two bands of lightness. Colour is
// never the only sign: legends, tables and tooltips carry the id.
//
// A group "g5" or "users-5" asks for the fifth colour, others for one by a
// hash of their id, and a taken colour passes on to the next free one: adding
// a group does not recolour the others.

const light = [
  "#0b6cb8",
  "#c0650a",
  "#0b8a66",
  "#b0508a",
  "#7a6a00",
  "#2b8fc4",
  "#c8452c",
  "#6a55c2",
  "#8a5a3c",
  "#5b6572",
];
const dark = [
  "#4ea3dd",
  "#e58a2b",
  "#2fb58c",
  "#d48cbd",
  "#c3b23c",
  "#82c9ee",
  "#f0765a",
  "#9f8cf0",
  "#c2926f",
  "#98a2b0",
];

export type Scheme = "light" | "dark";
export const palettes: Record<Scheme, string[]> = { light, dark };
export const mapGround: Record<Scheme, string> = { light: "#ffffff", dark: "#14171c" };

/** Ids in the order people read them: g2 before g10. */
export function naturalOrder(ids: Iterable<string>): string[] {
  const collator = new Intl.Collator("en", { numeric: true });
  return [...ids].sort(collator.compare);
}

function wanted(id: string): number {
  const digits = /(\d+)$/.exec(id);
  if (digits) return Math.max(0, Number(digits[1]) - 1);
  let hash = 0;
  for (const char of id) hash = (hash * 31 + char.codePointAt(0)!) >>> 0;
  return hash % light.length;
}

/** Gives each id an index into the palette. */
export function assignColors(ids: Iterable<string>): Map<string, number> {
  const taken = new Set<number>();
  const out = new Map<string, number>();
  for (const id of naturalOrder(ids)) {
    let index = wanted(id);
    if (taken.has(index)) {
      index = 0;
      while (taken.has(index)) index++;
    }
    taken.add(index);
    out.set(id, index);
  }
  return out;
}

export function colorAt(index: number, scheme: Scheme): string {
  const fixed = palettes[scheme];
  if (index < fixed.length) return fixed[index]!;
  const hue = ((index - fixed.length) * 137.508 + 20) % 360;
  const upper = index % 2 === 0;
  const lightness = scheme === "light" ? (upper ? 0.5 : 0.58) : upper ? 0.72 : 0.8;
  return oklch(lightness, 0.12, hue);
}

/** OKLCH keeps equal lightness equal for the eye, which HSL does not. */
export function oklch(l: number, c: number, hue: number): string {
  const a = c * Math.cos((hue * Math.PI) / 180);
  const b = c * Math.sin((hue * Math.PI) / 180);
  const l3 = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m3 = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s3 = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l3 - 3.3077115913 * m3 + 0.2309699292 * s3,
    -1.2684380046 * l3 + 2.6097574011 * m3 - 0.3413193965 * s3,
    -0.0041960863 * l3 - 0.7034186147 * m3 + 1.707614701 * s3,
  ];
  const hex = linear.map((v) => {
    const clipped = Math.min(1, Math.max(0, v));
    const gamma = clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055;
    return Math.round(gamma * 255)
      .toString(16)
      .padStart(2, "0");
  });
  return `#${hex.join("")}`;
}

export function toRgb(hex: string): [number, number, number] {
  const n = Number.parseInt(hex.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

/** WCAG contrast ratio of two colours. */
export function contrast(a: string, b: string): number {
  const luminance = (hex: string) => {
    const [r, g, bl] = toRgb(hex).map((v) => {
      const s = v / 255;
      return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r! + 0.7152 * g! + 0.0722 * bl!;
  };
  const [hi, lo] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (hi! + 0.05) / (lo! + 0.05);
}
