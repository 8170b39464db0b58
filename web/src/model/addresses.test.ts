import { describe, expect, it } from "vitest";
import { goodGroupId, readAddresses, suggestGroupId } from "./addresses";

describe("addresses", () => {
  it("reads lines, commas and repeats", () => {
    expect(readAddresses("10.0.0.1:6379\n db-2.local:7000, [::1]:6380 10.0.0.1:6379").addresses).toEqual([
      "10.0.0.1:6379",
      "db-2.local:7000",
      "[::1]:6380",
    ]);
  });

  it("names what is none", () => {
    expect(readAddresses("10.0.0.1, host:0, host:70000, :6379").faults).toEqual([
      "10.0.0.1",
      "host:0",
      "host:70000",
      ":6379",
    ]);
  });

  it("suggests the next group", () => {
    expect(suggestGroupId(["g1", "g3", "spare"])).toBe("g4");
    expect(suggestGroupId([])).toBe("g1");
    expect(goodGroupId("a b")).toBe(false);
  });
});
