// The last 15 minutes of a few figures, kept by the page itself from the
// stream: enough for a sparkline and the chart on Overview. Prometheus keeps
// the long history.

import { useSyncExternalStore } from "react";
import type { ProxyInfo, Status } from "./types";

export type Sample = { at: number; ops: number; p50: number | null; p99: number | null };

const span = 15 * 60_000;
const step = 1000; // at most one sample a second

export function addSample(samples: Sample[], sample: Sample): Sample[] {
  const tail = samples.at(-1);
  if (tail && sample.at - tail.at < step) return samples;
  const from = samples.findIndex((s) => s.at >= sample.at - span);
  return [...(from > 0 ? samples.slice(from) : from < 0 ? [] : samples), sample];
}

/** The slowest serving proxy speaks for the cluster; means would hide it. */
export function sampleOf(status: Status, proxies: ProxyInfo[], at: number): Sample {
  const serving = proxies.filter((p) => p.state === "serving");
  const worst = (pick: (p: ProxyInfo) => number): number | null =>
    serving.length ? Math.max(...serving.map(pick).map((n) => n || 0)) : null;
  return { at, ops: status.opsPerSecond, p50: worst((p) => p.p50Ms), p99: worst((p) => p.p99Ms) };
}

let samples: Sample[] = [];
const listeners = new Set<() => void>();

export function recordSample(status: Status, proxies: ProxyInfo[], at = Date.now()): void {
  const next = addSample(samples, sampleOf(status, proxies, at));
  if (next === samples) return;
  samples = next;
  for (const listener of listeners) listener();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useHistory = (): Sample[] => useSyncExternalStore(subscribe, () => samples);
