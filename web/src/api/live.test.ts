import { describe, expect, it } from "vitest";
import { addSample } from "./history";
import { ageOf } from "./live";

describe("age of the data", () => {
  it("is fresh while live, however long ago the last change was", () => {
    expect(ageOf({ state: "live", lastAt: 0 }, 1e9)).toBe("fresh");
  });

  it("grows from the moment the connection broke", () => {
    const live = { state: "reconnecting" as const, lastAt: 100_000 };
    expect(ageOf(live, 105_000)).toBe("fresh");
    expect(ageOf(live, 115_000)).toBe("stale");
    expect(ageOf(live, 161_000)).toBe("lost");
  });
});

describe("history", () => {
  it("keeps one sample a second and a quarter of an hour", () => {
    let samples = addSample([], { at: 0, ops: 1, p50: null, p99: null });
    expect(addSample(samples, { at: 500, ops: 2, p50: null, p99: null })).toBe(samples);
    for (let s = 1; s <= 1000; s++)
      samples = addSample(samples, { at: s * 1000, ops: s, p50: null, p99: null });
    expect(samples[0]!.at).toBe(100_000);
    expect(samples.at(-1)!.at).toBe(1_000_000);
  });
});
