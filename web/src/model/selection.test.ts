import { describe, expect, it } from "vitest";
import { formatRanges } from "./ranges";
import { emptySelection, extend, press, type Selection, selectRanges } from "./selection";

const text = (s: Selection) => formatRanges(s.ranges);

describe("selection", () => {
  it("selects one slot on a press and forgets the others", () => {
    expect(text(press(press(emptySelection, 5, false), 9, false))).toBe("9");
  });

  it("drags in both directions from where it began", () => {
    const start = press(emptySelection, 10, false);
    expect(text(extend(start, 14))).toBe("10-14");
    expect(text(extend(extend(start, 14), 7))).toBe("7-10");
  });

  it("keeps what was there when adding, also while dragging", () => {
    const first = extend(press(emptySelection, 0, false), 3);
    const second = press(first, 100, true);
    expect(text(second)).toBe("0-3,100");
    expect(text(extend(extend(second, 110), 105))).toBe("0-3,100-105");
  });

  it("extends a typed list from its start", () => {
    expect(text(extend(selectRanges([{ first: 8, last: 9 }]), 12))).toBe("8-12");
  });

  it("starts where nothing was selected yet", () => {
    expect(text(extend(emptySelection, 4))).toBe("4");
  });
});
