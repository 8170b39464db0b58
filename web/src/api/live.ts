// Whether what the page shows is current, as one small store: the state of the
// stream and when data last came.

import { useSyncExternalStore } from "react";
import type { LiveState } from "./stream";

export type Live = {
  state: LiveState;
  /** When the page last knew the truth; while live, that is always now. */
  lastAt: number | null;
};

let live: Live = { state: "connecting", lastAt: null };
const listeners = new Set<() => void>();

export function setLive(state: LiveState, now = Date.now()): void {
  const wasLive = live.state === "live";
  const lastAt = state === "live" || wasLive ? now : live.lastAt;
  if (state === live.state && state === "live") {
    live.lastAt = now; // no one has to draw for this
    return;
  }
  live = { state, lastAt };
  for (const listener of listeners) listener();
}

/** A fetched snapshot is current for the moment it arrived. */
export function markFresh(now = Date.now()): void {
  live = { ...live, lastAt: now };
  for (const listener of listeners) listener();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useLive = (): Live => useSyncExternalStore(subscribe, () => live);

export type Age = "fresh" | "stale" | "lost";

/** Older than 10 s is dimmed, older than 60 s is called no data. */
export function ageOf({ state, lastAt }: Live, now: number): Age {
  if (state === "live" || lastAt === null) return "fresh";
  const seconds = (now - lastAt) / 1000;
  return seconds > 60 ? "lost" : seconds > 10 ? "stale" : "fresh";
}
