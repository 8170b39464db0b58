import { describe, expect, it } from "vitest";
import { curl, equivalents } from "./commands";

describe("equivalents", () => {
  it("quote for a shell", () => {
    expect(curl("POST", "/plans", { goal: "it's" }, "http://x")).toContain(`-d '{"goal":"it'\\''s"}'`);
    expect(equivalents.removeNode("g1", "10.0.0.1:6379").curl).toContain("/groups/g1/nodes/10.0.0.1%3A6379");
  });

  it("never hold a password", () => {
    const { cli, curl: request } = equivalents.createGroup("g5", ["a:1"]);
    expect(cli).toContain("--password-file");
    expect(request).toContain('"password":"…"');
  });
});
