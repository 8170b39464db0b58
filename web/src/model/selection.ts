// What is selected on the slot map, as a value: pure functions from one
// selection to the next, so that mouse, keyboard and the typed list share one
// set of rules. Slots run row by row, so a drag selects every slot between its
// two ends, as text does, and not a rectangle: moves are made of runs.

import { normalizeRanges, type Range } from "./ranges";

export type Selection = {
  ranges: Range[];
  anchor: number | null; // where shift-click and drag extend from
  base: Range[]; // what an extension is added to
};

export const emptySelection: Selection = { ranges: [], anchor: null, base: [] };

const between = (a: number, b: number): Range => ({ first: Math.min(a, b), last: Math.max(a, b) });

/** Starts anew at a slot; with add, what was selected is kept. */
export function press(selection: Selection, slot: number, add: boolean): Selection {
  const base = add ? selection.ranges : [];
  return { ranges: normalizeRanges([...base, between(slot, slot)]), anchor: slot, base };
}

/** Extends from the anchor to a slot: shift-click, drag, shift-arrow. */
export function extend(selection: Selection, slot: number): Selection {
  if (selection.anchor === null) return press(selection, slot, false);
  return {
    ...selection,
    ranges: normalizeRanges([...selection.base, between(selection.anchor, slot)]),
  };
}

export function selectRanges(ranges: Range[]): Selection {
  return { ranges: normalizeRanges(ranges), anchor: ranges[0]?.first ?? null, base: [] };
}
