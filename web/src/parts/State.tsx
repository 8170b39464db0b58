// A state in one word. Fine states are plain words; only what is going on or
// needs a person gets a sign.

import { CircleAlert, Loader, TriangleAlert } from "lucide-react";
import type { Tone } from "../model/states";
import styles from "./parts.module.css";

const icons = { neutral: null, active: Loader, warn: TriangleAlert, bad: CircleAlert };

export function State({ tone, children, testId }: { tone: Tone; children: string; testId?: string }) {
  const Icon = icons[tone];
  return (
    <span className={styles.state} data-tone={tone} data-testid={testId}>
      {Icon && <Icon size={14} aria-hidden />}
      <span>{children}</span>
    </span>
  );
}
