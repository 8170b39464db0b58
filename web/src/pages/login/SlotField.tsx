// The picture beside the sign-in form: a slot map, drawn once, in which the
// slots of one group are spread over the others, as a rebalance leaves them.

import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import { colorAt } from "../../model/palette";
import styles from "./SignInPage.module.css";

const cell = 22;
const gap = 3;

export function SlotField() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = useComputedColorScheme("light");
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const draw = () => paint(element, scheme);
    draw();
    const observer = new ResizeObserver(draw);
    observer.observe(element);
    return () => observer.disconnect();
  }, [scheme]);
  return (
    <div className={styles.field} aria-hidden>
      <canvas ref={canvas} />
    </div>
  );
}

function paint(canvas: HTMLCanvasElement, scheme: "light" | "dark"): void {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(ratio, ratio);
  const columns = Math.ceil(width / cell);
  const rows = Math.ceil(height / cell);
  const total = columns * rows;
  for (let i = 0; i < total; i++) {
    const owner = Math.floor((i / total) * 4);
    // The tail of each owner's run has gone to the fifth group.
    const tail = ((i / total) * 4) % 1 > 0.8;
    context.fillStyle = colorAt(tail ? 7 : owner, scheme);
    context.globalAlpha = 0.28 + 0.6 * ((i % columns) / columns);
    context.fillRect((i % columns) * cell, Math.floor(i / columns) * cell, cell - gap, cell - gap);
  }
}
