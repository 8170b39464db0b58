import { describe, expect, it } from "vitest";
import * as f from "./format";

const plain = (text: string) => text.replaceAll("\u00a0", " ");

describe("format", () => {
  it.each([
    [0, "0"],
    [812, "812"],
    [9999, "9,999"],
    [9999.6, "10 k"],
    [12_345, "12.3 k"],
    [212_400, "212 k"],
    [999_960, "1 M"],
    [84_000_000, "84 M"],
    [null, "–"],
    [Number.NaN, "–"],
  ])("counts %s as %s", (n, want) => {
    expect(plain(f.count(n))).toBe(want);
  });

  it.each([
    [0, "0 B"],
    [1023, "1,023 B"],
    [1024, "1 KiB"],
    [1.5 * 2 ** 30, "1.5 GiB"],
    [1_048_575, "1 MiB"],
    [undefined, "–"],
  ])("sizes %s as %s", (n, want) => {
    expect(plain(f.bytes(n))).toBe(want);
  });

  it.each([
    [5, "5 s"],
    [250, "4 min 10 s"],
    [3600, "1 h"],
    [4800, "1 h 20 min"],
    [90_000, "1 d 1 h"],
    [-1, "–"],
  ])("lasts %s as %s", (n, want) => {
    expect(plain(f.duration(n))).toBe(want);
  });

  it.each([
    [0.2, "1 s"],
    [43, "45 s"],
    [97, "1 min 40 s"],
    [200, "3 min"],
    [7300, "2 h"],
  ])("estimates %s as %s", (n, want) => {
    expect(plain(f.estimate(n))).toBe(want);
  });

  it("says 100 % only when all is done", () => {
    expect(plain(f.percent(0.9999))).toBe("99 %");
    expect(plain(f.percent(1))).toBe("100 %");
    expect(plain(f.percent(0.035))).toBe("3.5 %");
  });

  it("tells ages, and not for a time that is not set", () => {
    const now = Date.parse("2026-01-01T00:10:00Z");
    expect(plain(f.ago("2026-01-01T00:05:30Z", now))).toBe("4 min ago");
    expect(f.ago("0001-01-01T00:00:00Z", now)).toBe("–");
    expect(f.ago(undefined, now)).toBe("–");
  });

  it("measures imbalance against the mean", () => {
    expect(f.imbalance([256, 256, 256, 256])).toBe(0);
    expect(f.imbalance([342, 341, 341, 0])).toBeCloseTo(0.336, 2);
    expect(f.imbalance([])).toBe(0);
  });
});
