// The time, once a second, shared by everything that shows an age.

import { useSyncExternalStore } from "react";

let tick = Date.now();
const clockListeners = new Set<() => void>();
let clockTimer: ReturnType<typeof setInterval> | undefined;

function subscribeClock(listener: () => void): () => void {
  clockListeners.add(listener);
  clockTimer ??= setInterval(() => {
    tick = Date.now();
    for (const each of clockListeners) each();
  }, 1000);
  return () => {
    clockListeners.delete(listener);
    if (clockListeners.size === 0) {
      clearInterval(clockTimer);
      clockTimer = undefined;
    }
  };
}

export const useNow = (): number => useSyncExternalStore(subscribeClock, () => tick);
