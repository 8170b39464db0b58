// Single numbers: a tile with a label and a unit, a thin meter, a sparkline.

import type { ReactNode } from "react";
import { type Figure, percent } from "../model/format";
import styles from "./parts.module.css";

export function Tile({
  label,
  figure,
  note,
  children,
  tone,
}: {
  label: string;
  figure: Figure;
  note?: ReactNode;
  children?: ReactNode;
  tone?: "warn" | "bad";
}) {
  return (
    <div className={styles.tile} data-tone={tone}>
      <dt>{label}</dt>
      <dd>
        <span className={styles.value}>{figure.value}</span>
        {figure.unit && <span className={styles.unit}> {figure.unit}</span>}
        {note && <p className={styles.tileNote}>{note}</p>}
        {children}
      </dd>
    </div>
  );
}

export function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div className={styles.fact}>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Meter({ ratio, label, color }: { ratio: number; label: string; color?: string }) {
  const part = Math.min(1, Math.max(0, ratio || 0));
  return (
    // biome-ignore lint/a11y/useSemanticElements: a meter element can not be drawn alike everywhere
    <div
      className={styles.meter}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(part * 100)}
      aria-valuetext={percent(part)}
      data-full={part > 0.85 || undefined}
    >
      <span style={{ width: `${part * 100}%`, ...(color && part <= 0.85 ? { background: color } : {}) }} />
    </div>
  );
}

export function Sparkline({ values, label }: { values: number[]; label: string }) {
  if (values.length < 2) return <div className={styles.sparkline} aria-hidden />;
  const max = Math.max(...values);
  const min = Math.min(...values, max * 0.7);
  const points = values.map((v, i) => {
    const x = (i / (values.length - 1)) * 100;
    const y = 27 - ((v - min) / (max - min || 1)) * 24;
    return `${x.toFixed(2)},${y.toFixed(2)}`;
  });
  return (
    <svg
      className={styles.sparkline}
      viewBox="0 0 100 28"
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <polyline points={points.join(" ")} vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
