import { useEffect, useRef, useState } from "react";
import type { Operation } from "../../api/types";
import { t } from "../../text";
import { progressLine } from "./progressLine";

/** Progress for screen readers: a change of state at once, else every 5 s. */
export function Announcer({ operation }: { operation: Operation }) {
  const [text, setText] = useState("");
  const latest = useRef("");
  latest.current = `${t.operationState[operation.state]}. ${progressLine(operation)}`;
  const state = operation.state;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a change of state restarts the clock
  useEffect(() => {
    setText(latest.current);
    const timer = setInterval(() => setText(latest.current), 5000);
    return () => clearInterval(timer);
  }, [state]);
  return (
    <p className="hidden-text" aria-live="polite">
      {text}
    </p>
  );
}
