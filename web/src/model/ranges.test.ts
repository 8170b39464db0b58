import { describe, expect, it } from "vitest";
import { countSlots, formatRanges, hasSlot, parseRanges, readRanges, shortenRanges } from "./ranges";

describe("parseRanges", () => {
  it.each([
    ["0-99,512", "0-99,512"],
    [" 5, 1-3 ,2-8", "1-8"],
    ["7", "7"],
    ["3 4 5", "3-5"],
    ["10–12", "10-12"],
    ["1,,2;", "1-2"],
    ["1023", "1023"],
  ])("reads %j as %j", (text, want) => {
    expect(formatRanges(parseRanges(text, 1024).ranges!)).toBe(want);
  });

  it.each([
    ["", "empty"],
    [" , ", "empty"],
    ["a", "syntax"],
    ["1-", "syntax"],
    ["-1", "syntax"],
    ["9-3", "order"],
    ["1024", "bounds"],
    ["0-1024", "bounds"],
    ["1e3", "syntax"],
  ])("refuses %j as %s", (text, kind) => {
    expect(parseRanges(text, 1024).error?.kind).toBe(kind);
  });
});

describe("ranges", () => {
  it("counts and finds slots", () => {
    const ranges = readRanges("0-99,512");
    expect(countSlots(ranges)).toBe(101);
    expect(hasSlot(ranges, 99)).toBe(true);
    expect(hasSlot(ranges, 100)).toBe(false);
  });

  it("reads an empty text as none", () => {
    expect(readRanges("")).toEqual([]);
  });

  it("shortens for a table cell", () => {
    expect(shortenRanges("1,3,5,7,9", 2)).toEqual({ shown: "1, 3", more: 3 });
  });
});
