// Sets of slots as sorted, disjoint, inclusive ranges, and their text form
// "0-99,512". Every list of slots from a person or the server goes through
// here.

export type Range = { first: number; last: number };
export type Parsed = { ranges: Range[]; error?: undefined } | { ranges?: undefined; error: RangeFault };
export type RangeFault =
  | { kind: "empty" }
  | { kind: "syntax"; part: string }
  | { kind: "order"; part: string }
  | { kind: "bounds"; part: string; last: number };

/** Sorts, and merges ranges that overlap or touch. */
export function normalizeRanges(ranges: Range[]): Range[] {
  const sorted = [...ranges].sort((a, b) => a.first - b.first);
  const out: Range[] = [];
  for (const range of sorted) {
    const tail = out.at(-1);
    if (tail && range.first <= tail.last + 1) tail.last = Math.max(tail.last, range.last);
    else out.push({ ...range });
  }
  return out;
}

/** Reads what a person typed; blanks and repeated commas are forgiven. */
export function parseRanges(text: string, slotCount: number): Parsed {
  const parts = text
    .split(/[,;\s]+/)
    .map((part) => part.trim())
    .filter(Boolean);
  if (parts.length === 0) return { error: { kind: "empty" } };
  const ranges: Range[] = [];
  for (const part of parts) {
    const match = /^(\d{1,6})(?:[-–](\d{1,6}))?$/.exec(part);
    if (!match) return { error: { kind: "syntax", part } };
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    if (last < first) return { error: { kind: "order", part } };
    if (last >= slotCount) return { error: { kind: "bounds", part, last: slotCount - 1 } };
    ranges.push({ first, last });
  }
  return { ranges: normalizeRanges(ranges) };
}

/** Reads the server's own range text, which is known to be well formed. */
export function readRanges(text: string): Range[] {
  const out: Range[] = [];
  for (const part of text.split(",")) {
    const [a, b] = part.split("-");
    const first = Number.parseInt(a ?? "", 10);
    const last = b === undefined ? first : Number.parseInt(b, 10);
    if (Number.isFinite(first) && Number.isFinite(last)) out.push({ first, last });
  }
  return out;
}

export function formatRanges(ranges: Range[]): string {
  return ranges.map((r) => (r.first === r.last ? `${r.first}` : `${r.first}-${r.last}`)).join(",");
}

export function countSlots(ranges: Range[]): number {
  return ranges.reduce((sum, r) => sum + r.last - r.first + 1, 0);
}

export function hasSlot(ranges: Range[], slot: number): boolean {
  return ranges.some((r) => r.first <= slot && slot <= r.last);
}

/** Range text cut to its first parts, for a table cell: "0-99, 512 and 3 more". */
export function shortenRanges(text: string, keep = 3): { shown: string; more: number } {
  const parts = text.split(",").filter(Boolean);
  return { shown: parts.slice(0, keep).join(", "), more: Math.max(0, parts.length - keep) };
}
