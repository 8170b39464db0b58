// The live connection: one EventSource for the whole page.
//
// Server-sent events need only what HTTP has, but the browser's own reconnect
// neither backs off nor says what it is doing, so a broken source is closed
// and a new one opened by a timer here. Every connection starts with a full
// snapshot, so nothing has to be resumed. After three failures in a row the
// snapshot is fetched as well on every try, which keeps a page behind a proxy
// that buffers streams alive, only slower. A page hidden for a minute lets go
// of its connection: browsers allow about six per host over all tabs.

import { backoff } from "./backoff";
import { root } from "./client";
import type { StreamEvent } from "./reducer";

export type LiveState = "connecting" | "live" | "reconnecting" | "polling" | "hidden";

export type StreamSeams = {
  open: (url: string) => EventSource;
  poll: () => Promise<unknown>;
  onEvent: (event: StreamEvent) => void;
  onState: (state: LiveState) => void;
  /** Is there still a session? Asked after a failure; false ends the stream. */
  stillSignedIn: () => Promise<boolean>;
};

const names = ["snapshot", "status", "slots", "groups", "proxies", "operations"] as const;
const pollAfter = 3;
const hideAfter = 60_000;

export class Stream {
  private source: EventSource | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private hideTimer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0; // in a row, since the last event
  private stopped = true;

  constructor(private readonly seams: StreamSeams) {}

  start(): void {
    this.stopped = false;
    document.addEventListener("visibilitychange", this.onVisibility);
    this.connect();
  }

  stop(): void {
    this.stopped = true;
    document.removeEventListener("visibilitychange", this.onVisibility);
    clearTimeout(this.hideTimer);
    this.close();
  }

  private close(): void {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  private connect(): void {
    this.close();
    this.seams.onState(this.failures === 0 ? "connecting" : this.stateWhileDown());
    const source = this.seams.open(`${root}/events`);
    this.source = source;
    for (const name of names) {
      source.addEventListener(name, (event) => this.receive(source, name, event as MessageEvent<string>));
    }
    // One operation each change; read under either spelling.
    source.addEventListener("operation", (event) =>
      this.receive(source, "operations", event as MessageEvent<string>),
    );
    source.addEventListener("resync", () => this.reconnectNow(source));
    source.onerror = () => this.fail(source);
  }

  private receive(source: EventSource, type: StreamEvent["type"], event: MessageEvent<string>): void {
    if (source !== this.source) return;
    let data: unknown;
    try {
      data = JSON.parse(event.data);
    } catch {
      this.fail(source);
      return;
    }
    this.failures = 0;
    this.seams.onState("live");
    this.seams.onEvent({ type, data });
  }

  private reconnectNow(source: EventSource): void {
    if (source === this.source) this.connect();
  }

  private stateWhileDown(): LiveState {
    return this.failures >= pollAfter ? "polling" : "reconnecting";
  }

  private fail(source: EventSource): void {
    if (source !== this.source || this.stopped) return;
    this.close();
    const wait = backoff(this.failures);
    this.failures++;
    this.seams.onState(this.stateWhileDown());
    this.timer = setTimeout(() => void this.retry(), wait);
  }

  private async retry(): Promise<void> {
    if (!(await this.seams.stillSignedIn().catch(() => true)) || this.stopped) return;
    if (this.failures >= pollAfter) {
      await this.seams.poll().then(
        (data) => this.seams.onEvent({ type: "snapshot", data }),
        () => undefined,
      );
    }
    if (!this.stopped) this.connect();
  }

  private onVisibility = (): void => {
    clearTimeout(this.hideTimer);
    if (document.visibilityState === "hidden") {
      this.hideTimer = setTimeout(() => {
        this.close();
        this.seams.onState("hidden");
      }, hideAfter);
    } else if (!this.source && !this.stopped) {
      this.failures = 0;
      this.connect();
    }
  };
}
