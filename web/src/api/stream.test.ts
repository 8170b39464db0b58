import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { backoff } from "./backoff";
import type { StreamEvent } from "./reducer";
import { type LiveState, Stream } from "./stream";

class FakeSource {
  listeners = new Map<string, (event: { data: string }) => void>();
  onerror: (() => void) | null = null;
  closed = false;
  addEventListener(name: string, listener: (event: { data: string }) => void) {
    this.listeners.set(name, listener);
  }
  close() {
    this.closed = true;
  }
  send(name: string, data: unknown) {
    this.listeners.get(name)?.({ data: JSON.stringify(data) });
  }
}

let sources: FakeSource[];
let states: LiveState[];
let events: StreamEvent[];
let signedIn: boolean;
const poll = vi.fn(async () => ({ polled: true }));
let stream: Stream;
const last = () => sources.at(-1)!;

beforeEach(() => {
  vi.useFakeTimers();
  [sources, states, events, signedIn] = [[], [], [], true];
  poll.mockClear();
  stream = new Stream({
    open: () => {
      const source = new FakeSource();
      sources.push(source);
      return source as unknown as EventSource;
    },
    poll,
    onEvent: (event) => events.push(event),
    onState: (state) => states.push(state),
    stillSignedIn: async () => signedIn,
  });
  stream.start();
});
afterEach(() => {
  stream.stop();
  vi.useRealTimers();
});

describe("stream", () => {
  it("is live from the first event on", () => {
    expect(states).toEqual(["connecting"]);
    last().send("snapshot", { a: 1 });
    expect(states.at(-1)).toBe("live");
    expect(events).toEqual([{ type: "snapshot", data: { a: 1 } }]);
  });

  it("reads one operation under either name", () => {
    last().send("operation", { id: "op-1" });
    last().send("operations", { id: "op-1" });
    expect(events.map((e) => e.type)).toEqual(["operations", "operations"]);
  });

  it("reconnects by itself, and polls after three failures in a row", async () => {
    for (let i = 0; i < 3; i++) {
      last().onerror?.();
      expect(last().closed).toBe(true);
      await vi.advanceTimersByTimeAsync(16_000);
    }
    expect(sources).toHaveLength(4);
    expect(states.at(-1)).toBe("polling");
    expect(poll).toHaveBeenCalledOnce();
    expect(events).toEqual([{ type: "snapshot", data: { polled: true } }]);
    last().send("snapshot", {});
    expect(states.at(-1)).toBe("live");
  });

  it("opens a new connection when told to resync", () => {
    const first = last();
    first.send("resync", {});
    expect(first.closed).toBe(true);
    expect(sources).toHaveLength(2);
  });

  it("ends when the session is gone", async () => {
    signedIn = false;
    last().onerror?.();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(sources).toHaveLength(1);
  });

  it("ignores a source that was replaced", () => {
    const first = last();
    first.send("resync", {});
    first.send("status", {});
    expect(events).toEqual([]);
  });
});

describe("backoff", () => {
  it("doubles to a ceiling and never waits less than half of it", () => {
    expect([0, 1, 2, 3, 4, 9].map((n) => backoff(n, () => 1))).toEqual([
      1000, 2000, 4000, 8000, 15_000, 15_000,
    ]);
    expect(backoff(4, () => 0)).toBe(7500);
  });
});
