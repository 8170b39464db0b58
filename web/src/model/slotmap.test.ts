import { describe, expect, it } from "vitest";
import { buildSlotMap, columnsFor, countOwners, countStates, describeSlot, ownersOf } from "./slotmap";

const map = buildSlotMap(
  [
    { slots: "0-9,20", group: "g1", state: "online" },
    { slots: "10-14", group: "g2", state: "moving", to: "g1" },
    { slots: "15", group: "g2", state: "held", to: "g1" },
    { slots: "16-19", group: "", state: "unassigned" },
  ],
  32,
  ["g1", "g2", "g3"],
);

describe("slot map", () => {
  it("is a square of either scheme", () => {
    expect(columnsFor(16_384)).toBe(128);
    expect(columnsFor(1024)).toBe(32);
  });

  it("counts owners, with spares at 0", () => {
    expect(countOwners(map)).toEqual({ g1: 11, g2: 6, g3: 0 });
  });

  it("counts states; slots in no run are unassigned", () => {
    expect(countStates(map)).toEqual({ online: 11, moving: 5, held: 1, unassigned: 15 });
  });

  it("describes a slot", () => {
    expect(describeSlot(map, 12)).toEqual({ slot: 12, group: "g2", to: "g1", state: "moving" });
    expect(describeSlot(map, 31)).toEqual({ slot: 31, group: "", to: "", state: "unassigned" });
  });

  it("sums the owners of a selection, most first", () => {
    expect(ownersOf(map, [{ first: 8, last: 17 }])).toEqual([
      { group: "g2", slots: 6 },
      { group: "g1", slots: 2 },
      { group: "", slots: 2 },
    ]);
  });

  it("learns a group that is only named by a run", () => {
    const late = buildSlotMap([{ slots: "0-3", group: "g9", state: "online" }], 4, []);
    expect(countOwners(late)).toEqual({ g9: 4 });
  });
});
