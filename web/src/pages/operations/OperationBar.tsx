import type { Operation } from "../../api/types";
import { percent } from "../../model/format";
import { finished } from "../../model/states";
import { t } from "../../text";
import styles from "./Operations.module.css";

/** How far an operation is, in bytes where it copies any. */
export function OperationBar({
  operation,
  thin,
  testId,
}: {
  operation: Operation;
  thin?: boolean;
  testId?: string;
}) {
  const done = operation.state === "succeeded";
  const fraction = done ? 1 : Math.min(1, Math.max(0, operation.progress?.fraction ?? 0));
  const value = Math.floor(fraction * 100);
  return (
    <div
      className={styles.bar}
      role="progressbar"
      aria-label={t.progress.label(operation.summary)}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={value}
      aria-valuetext={percent(fraction)}
      data-thin={thin || undefined}
      data-state={operation.state}
      data-moving={!finished(operation.state) && operation.state !== "paused" ? "" : undefined}
      data-testid={testId}
      data-fraction={fraction}
    >
      <span style={{ width: `${fraction * 100}%` }} />
    </div>
  );
}
