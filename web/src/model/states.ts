// What states mean for the page: how loud each is shown and where it stands.

import type { Group, MoveState, Operation, OperationState, ProxyInfo } from "../api/types";

/** neutral = fine, active = something is going on, warn and bad = act. */
export type Tone = "neutral" | "active" | "warn" | "bad";

export const finished = (state: OperationState): boolean =>
  state === "succeeded" || state === "failed" || state === "cancelled";

export const operationTone = (state: OperationState): Tone =>
  state === "failed" ? "bad" : state === "paused" ? "warn" : finished(state) ? "neutral" : "active";

export const groupTone = (state: Group["state"]): Tone =>
  state === "down" ? "bad" : state === "attention" ? "warn" : state === "draining" ? "active" : "neutral";

export const proxyTone = (state: ProxyInfo["state"]): Tone =>
  state === "down" || state === "evicting" ? "bad" : state === "serving" ? "neutral" : "active";

/** The four lanes of the move strip, in the order a move goes through them. */
export type Lane = "waiting" | "moving" | "handing-over" | "done" | "stopped" | "failed";

export function laneOf(state: MoveState | string): Lane {
  switch (state) {
    case "pending":
      return "waiting";
    case "handing-over":
      return "handing-over";
    case "purging": // the slots already answer from their new group
    case "done":
      return "done";
    case "parked":
    case "cancelled":
      return "stopped";
    case "failed":
      return "failed";
    default:
      return "moving";
  }
}

const rank: Record<string, number> = { bad: 0, warn: 1, active: 2, neutral: 3 };
export const byTone =
  <T>(tone: (item: T) => Tone, then: (item: T) => string) =>
  (a: T, b: T): number =>
    rank[tone(a)]! - rank[tone(b)]! || new Intl.Collator("en", { numeric: true }).compare(then(a), then(b));

/** Running first, then queued, then history newest first. */
export function splitOperations(operations: Operation[]) {
  const newest = [...operations].sort((a, b) => (b.createdAt ?? "").localeCompare(a.createdAt ?? ""));
  return {
    running: newest.filter((op) => !finished(op.state) && op.state !== "queued"),
    queued: newest.filter((op) => op.state === "queued").reverse(),
    history: newest.filter((op) => finished(op.state)),
  };
}

/** Seconds without any progress after which a running operation is called stalled. */
export const stalledAfter = 30;
