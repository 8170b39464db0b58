// The rebalance wizard as a state machine: choose a goal, look at the stored
// plan, start exactly that plan. A plan whose base is gone is never run; the
// only way on is to compute a new one.

import type { Goal, Group, Plan, PlanRequest } from "../api/types";

export type GoalChoice = {
  goal: Goal;
  drain: string[]; // groups to empty
  slots: string; // range text for "move"
  toGroup: string;
};

export type Fault = "noGroup" | "allDrained" | "noSlots" | "noTarget" | "oneGroup" | null;

export function choiceFromQuery(query: string): GoalChoice {
  const params = new URLSearchParams(query);
  const goal = params.get("goal");
  return {
    goal: goal === "drain" || goal === "move" || goal === "assign" ? goal : "slots",
    drain: params.get("groups")?.split(",").filter(Boolean) ?? [],
    slots: params.get("slots") ?? "",
    toGroup: params.get("to") ?? "",
  };
}

export function queryFor(choice: Partial<GoalChoice>): string {
  const params = new URLSearchParams();
  if (choice.goal) params.set("goal", choice.goal);
  if (choice.drain?.length) params.set("groups", choice.drain.join(","));
  if (choice.slots) params.set("slots", choice.slots);
  if (choice.toGroup) params.set("to", choice.toGroup);
  return params.toString();
}

/** Why a plan can not be asked for yet, or null. */
export function faultOf(choice: GoalChoice, groups: Pick<Group, "id">[]): Fault {
  switch (choice.goal) {
    case "slots":
      return groups.length < 2 ? "oneGroup" : null;
    case "assign":
      return groups.length < 1 ? "noGroup" : null;
    case "drain": {
      if (choice.drain.length === 0) return "noGroup";
      return groups.every((g) => choice.drain.includes(g.id)) ? "allDrained" : null;
    }
    case "move":
      if (!choice.slots) return "noSlots";
      return choice.toGroup ? null : "noTarget";
  }
}

export function requestOf(choice: GoalChoice, groups: Pick<Group, "id">[]): PlanRequest {
  switch (choice.goal) {
    case "slots":
      return { goal: "slots" };
    case "assign":
      return { goal: "assign", groups: groups.map((g) => g.id) };
    case "drain":
      return { goal: "drain", groups: choice.drain };
    case "move":
      return { goal: "move", slots: choice.slots, toGroup: choice.toGroup };
  }
}

/** The choice that leads to a plan like this one again, for "recompute". */
export function choiceOfPlan(plan: Plan): GoalChoice {
  const from = [...new Set(plan.moves.map((m) => m.from))];
  return {
    goal: plan.goal,
    drain: plan.goal === "drain" ? from : [],
    slots: plan.goal === "move" ? plan.moves.map((m) => m.slots).join(",") : "",
    toGroup: plan.goal === "move" ? (plan.moves[0]?.to ?? "") : "",
  };
}

export type PlanStanding = "ready" | "empty" | "stale" | "expired" | "blocked";

/**
 * What may be done with a plan: empty = nothing to move; blocked = a check
 * failed; stale = the server refused it, its base is gone; expired = too old.
 */
export function standingOf(plan: Plan, refused: boolean, now: number): PlanStanding {
  if (refused) return "stale";
  if (Date.parse(plan.expiresAt) < now) return "expired";
  if (plan.moves.length === 0) return "empty";
  return plan.checks.some((c) => c.result === "fail") ? "blocked" : "ready";
}

/** Named speeds, bytes per second; undefined leaves it to the coordinator. */
export const speeds = { gentle: 8 << 20, normal: 40 << 20, full: undefined } as const;
export type Speed = keyof typeof speeds;
