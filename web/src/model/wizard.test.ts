import { describe, expect, it } from "vitest";
import { plan } from "../testing/fixture";
import { choiceFromQuery, choiceOfPlan, faultOf, queryFor, requestOf, standingOf } from "./wizard";

const groups = [{ id: "g1" }, { id: "g2" }];
const choose = (query: string) => choiceFromQuery(query);

describe("rebalance wizard", () => {
  it("keeps a choice through the address", () => {
    const query = queryFor({ goal: "move", slots: "0-99,512", toGroup: "g2" });
    expect(choose(query)).toEqual({ goal: "move", drain: [], slots: "0-99,512", toGroup: "g2" });
    expect(choose(queryFor({ goal: "drain", drain: ["g1", "g2"] })).drain).toEqual(["g1", "g2"]);
    expect(choose("goal=nonsense").goal).toBe("slots");
  });

  it.each([
    ["goal=slots", null],
    ["goal=drain", "noGroup"],
    ["goal=drain&groups=g1,g2", "allDrained"],
    ["goal=drain&groups=g1", null],
    ["goal=move", "noSlots"],
    ["goal=move&slots=1", "noTarget"],
    ["goal=move&slots=1&to=g2", null],
    ["goal=assign", null],
  ])("finds the fault of %s", (query, fault) => {
    expect(faultOf(choose(query), groups)).toBe(fault);
  });

  it("needs two groups to share slots", () => {
    expect(faultOf(choose("goal=slots"), [{ id: "g1" }])).toBe("oneGroup");
  });

  it("asks the API for what was chosen", () => {
    expect(requestOf(choose("goal=slots"), groups)).toEqual({ goal: "slots" });
    expect(requestOf(choose("goal=assign"), groups)).toEqual({ goal: "assign", groups: ["g1", "g2"] });
    expect(requestOf(choose("goal=move&slots=1&to=g2"), groups)).toEqual({
      goal: "move",
      slots: "1",
      toGroup: "g2",
    });
  });

  it("lets only a fresh plan with moves and no failed check be run", () => {
    const now = Date.parse(plan.createdAt);
    expect(standingOf(plan, false, now)).toBe("ready");
    expect(standingOf(plan, true, now)).toBe("stale");
    expect(standingOf({ ...plan, moves: [] }, false, now)).toBe("empty");
    expect(standingOf({ ...plan, expiresAt: plan.createdAt }, false, now + 1)).toBe("expired");
    const failed = { ...plan, checks: [{ name: "x", result: "fail" as const, detail: "" }] };
    expect(standingOf(failed, false, now)).toBe("blocked");
  });

  it("recomputes with the same goal", () => {
    expect(choiceOfPlan({ ...plan, goal: "drain" }).drain).toEqual(["g1", "g2", "g3"]);
    expect(choiceOfPlan({ ...plan, goal: "move" })).toMatchObject({
      slots: "0-85,342-426,683-767",
      toGroup: "g4",
    });
  });
});
