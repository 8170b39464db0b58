import type { Operation, Progress } from "../../api/types";
import { bytes, bytesRate, duration, estimate, integer, percent } from "../../model/format";
import { finished } from "../../model/states";
import { t } from "../../text";

/** "63 % · 6.2 of 9.8 GiB · 41 MiB/s · about 1 min 30 s left" */
export function progressLine(operation: Operation): string {
  const p = operation.progress;
  return p ? [percent(p.fraction), amountLine(operation)].filter(Boolean).join(" · ") : "";
}

/** The same without the share, for where it is shown large. */
export function amountLine(operation: Operation): string {
  const p = operation.progress;
  if (!p) return "";
  const parts: string[] = [];
  if (p.bytesTotal > 0) parts.push(t.progress.of(bytes(p.bytesDone), bytes(p.bytesTotal)));
  else if (p.slotsTotal > 0) parts.push(t.progress.slots(integer(p.slotsDone), integer(p.slotsTotal)));
  if (operation.state === "running" && p.bytesPerSecond > 0) parts.push(bytesRate(p.bytesPerSecond));
  const left = timeLeft(operation, p);
  if (left) parts.push(left);
  return parts.join(" · ");
}

/** Nothing is promised before there is a rate to tell it from. */
export function timeLeft(operation: Operation, progress: Progress): string {
  if (operation.state !== "running" || progress.etaSeconds === null || progress.etaSeconds < 0) return "";
  if (progress.fraction <= 0) return "";
  return t.progress.left(estimate(progress.etaSeconds));
}

export function took(operation: Operation): string {
  const from = Date.parse(operation.startedAt ?? "");
  const to = Date.parse(operation.finishedAt ?? "");
  return finished(operation.state) && to >= from && from > 0 ? duration((to - from) / 1000) : "";
}
