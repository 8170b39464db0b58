// The slot map as arrays: one owner, state and target per slot, read from the
// server's runs. A cluster is some tens of runs, so this is cheap to redo on
// every change and the drawing code only looks numbers up.

import type { SlotRun, SlotState } from "../api/types";
import { countSlots, type Range, readRanges } from "./ranges";

export const stateCode = { online: 0, moving: 1, held: 2, unassigned: 3 } as const satisfies Record<
  SlotState,
  number
>;
export const stateNames: SlotState[] = ["online", "moving", "held", "unassigned"];

export type SlotMap = {
  slotCount: number;
  groups: string[]; // owner and target hold indexes into this
  owner: Int16Array; // -1 for none
  target: Int16Array; // -1 unless the slot is moving
  state: Uint8Array;
  epoch: number;
};

/** Columns of the square the map is drawn as: 128 for 16384, 32 for 1024. */
export function columnsFor(slotCount: number): number {
  return Math.max(1, Math.ceil(Math.sqrt(slotCount)));
}

export function buildSlotMap(runs: SlotRun[], slotCount: number, groupIds: string[], epoch = 0): SlotMap {
  const groups = [...groupIds];
  const index = new Map(groups.map((id, i) => [id, i]));
  const indexOf = (id: string | undefined): number => {
    if (!id) return -1;
    let i = index.get(id);
    if (i === undefined) {
      i = groups.push(id) - 1;
      index.set(id, i);
    }
    return i;
  };
  const owner = new Int16Array(slotCount).fill(-1);
  const target = new Int16Array(slotCount).fill(-1);
  const state = new Uint8Array(slotCount).fill(stateCode.unassigned);
  for (const run of runs) {
    const from = indexOf(run.group);
    const to = indexOf(run.to);
    // A run without an owner is unassigned, whatever it says.
    const code = from < 0 ? stateCode.unassigned : (stateCode[run.state] ?? stateCode.online);
    for (const { first, last } of readRanges(run.slots)) {
      const end = Math.min(last + 1, slotCount);
      owner.fill(from, first, end);
      target.fill(to, first, end);
      state.fill(code, first, end);
    }
  }
  return { slotCount, groups, owner, target, state, epoch };
}

/** Slots per group id; groups that own none are there with 0. */
export function countOwners(map: SlotMap): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const id of map.groups) counts[id] = 0;
  for (const i of map.owner) {
    const id = map.groups[i];
    if (id !== undefined) counts[id] = (counts[id] ?? 0) + 1;
  }
  return counts;
}

export function countStates(map: SlotMap): Record<SlotState, number> {
  const counts: Record<SlotState, number> = { online: 0, moving: 0, held: 0, unassigned: 0 };
  for (const code of map.state) counts[stateNames[code]!] += 1;
  return counts;
}

/** Who owns the slots of a selection, most first; "" stands for nobody. */
export function ownersOf(map: SlotMap, ranges: Range[]): { group: string; slots: number }[] {
  const counts = new Map<string, number>();
  for (const { first, last } of ranges) {
    for (let slot = first; slot <= last; slot++) {
      const group = map.groups[map.owner[slot]!] ?? "";
      counts.set(group, (counts.get(group) ?? 0) + 1);
    }
  }
  return [...counts].map(([group, slots]) => ({ group, slots })).sort((a, b) => b.slots - a.slots);
}

export function describeSlot(map: SlotMap, slot: number) {
  return {
    slot,
    group: map.groups[map.owner[slot] ?? -1] ?? "",
    to: map.groups[map.target[slot] ?? -1] ?? "",
    state: stateNames[map.state[slot] ?? 3]!,
  };
}

/** A run's slots, for the table twin of the map. */
export function runLength(run: SlotRun): number {
  return countSlots(readRanges(run.slots));
}
