import { describe, expect, it } from "vitest";
import { assignColors, colorAt, contrast, mapGround, naturalOrder, type Scheme } from "./palette";

describe("group colours", () => {
  it.each(["light", "dark"] as Scheme[])(
    "have 3:1 against the map in the %s theme, also beyond ten",
    (scheme) => {
      for (let i = 0; i < 60; i++) {
        expect(
          contrast(colorAt(i, scheme), mapGround[scheme]),
          `${i} ${colorAt(i, scheme)}`,
        ).toBeGreaterThanOrEqual(3);
      }
    },
  );

  it("follow the number in the id, so that adding a group recolours nobody", () => {
    const before = assignColors(["g1", "g2", "g4"]);
    const after = assignColors(["g1", "g2", "g3", "g4"]);
    for (const [id, color] of before) expect(after.get(id)).toBe(color);
  });

  it("are never shared while there are free ones", () => {
    const ids = ["users-1", "orders-1", "a", "b", "c", "g1", "g10"];
    expect(new Set(assignColors(ids).values()).size).toBe(ids.length);
  });

  it("orders ids as people count", () => {
    expect(naturalOrder(["g10", "g2", "g1"])).toEqual(["g1", "g2", "g10"]);
  });
});
