// The slot map as an element: it sizes and paints the canvas and turns mouse,
// touch and keys into slots. What those mean is up to the page.

import { useComputedColorScheme } from "@mantine/core";
import { type KeyboardEvent, type PointerEvent, useEffect, useRef, useState } from "react";
import { mapGround } from "../../model/palette";
import type { Range } from "../../model/ranges";
import { columnsFor, describeSlot, type SlotMap } from "../../model/slotmap";
import { useGroupColor } from "../../parts/groups";
import { t } from "../../text";
import { paint } from "./draw";
import { moveCursor } from "./keys";
import styles from "./Slots.module.css";

type Props = {
  map: SlotMap;
  summary: string;
  owners: string; // groups that own slots → how many, as JSON, for tests and scripts
  selection: Range[];
  dimOthers: string | null;
  blink: number | null;
  onPress: (slot: number, add: boolean) => void;
  onExtend: (slot: number) => void;
  onClear: () => void;
  onHover: (slot: number | null) => void;
};

export function SlotCanvas(props: Props) {
  const { map, selection, dimOthers, blink } = props;
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const dragging = useRef(false);
  const [cursor, setCursor] = useState<number | null>(null);
  const [cell, setCell] = useState(0);
  const colorOf = useGroupColor();
  const scheme = useComputedColorScheme("light");
  const columns = columnsFor(map.slotCount);

  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const measure = () => {
      // Square, as wide as there is room, and all of it on one screen.
      const room = Math.min(element.clientWidth, Math.max(384, innerHeight - 150), 1024);
      setCell(Math.max(2, Math.floor((room * (devicePixelRatio || 1)) / columns)));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [columns]);

  useEffect(() => {
    const element = canvas.current;
    if (!element || cell === 0) return;
    const token = (name: string) => getComputedStyle(element).getPropertyValue(name).trim();
    const look = {
      colorOf,
      ground: mapGround[scheme],
      line: token("--line-strong"),
      ink: token("--ink"),
      accent: token("--accent"),
    };
    const request = requestAnimationFrame(() =>
      paint(element, map, { columns, cell, selection, cursor, dimOthers, blink }, look),
    );
    return () => cancelAnimationFrame(request);
  }, [map, columns, cell, selection, cursor, dimOthers, blink, colorOf, scheme]);

  const slotAt = (event: PointerEvent): number | null => {
    const box = canvas.current!.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const y = Math.floor(((event.clientY - box.top) / box.height) * Math.ceil(map.slotCount / columns));
    const slot = y * columns + x;
    return x < 0 || x >= columns || slot < 0 || slot >= map.slotCount ? null : slot;
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") return props.onClear();
    const at = cursor ?? selection[0]?.first ?? 0;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return props.onPress(at, event.ctrlKey || event.metaKey);
    }
    const next = moveCursor(event.key, at, columns, map.slotCount);
    if (next === null) return;
    event.preventDefault();
    setCursor(next);
    if (event.shiftKey) props.onExtend(next);
    props.onHover(next);
  };

  const side = cell * columns;
  const ratio = globalThis.devicePixelRatio || 1;
  return (
    <div ref={frame} className={styles.frame}>
      {/* biome-ignore lint/a11y/noInteractiveElementToNoninteractiveRole: keys and pointer act on its cells, so it is an application */}
      <canvas
        ref={canvas}
        className={styles.canvas}
        style={{ width: side / ratio, height: (cell * Math.ceil(map.slotCount / columns)) / ratio }}
        tabIndex={0}
        role="application"
        aria-roledescription={t.slots.map}
        aria-label={props.summary}
        aria-describedby="slot-map-help"
        data-testid="slot-map"
        data-owners={props.owners}
        onPointerDown={(event) => {
          const slot = slotAt(event);
          if (slot === null || event.button !== 0) return;
          event.currentTarget.setPointerCapture?.(event.pointerId);
          setCursor(null);
          if (event.shiftKey) props.onExtend(slot);
          else props.onPress(slot, event.ctrlKey || event.metaKey);
          dragging.current = true;
        }}
        onPointerMove={(event) => {
          const slot = slotAt(event);
          props.onHover(slot);
          if (dragging.current && slot !== null) props.onExtend(slot);
        }}
        onPointerUp={() => {
          dragging.current = false;
        }}
        onPointerCancel={() => {
          dragging.current = false;
        }}
        onPointerLeave={() => props.onHover(null)}
        onKeyDown={onKeyDown}
        onBlur={() => setCursor(null)}
      />
      <p id="slot-map-help" className="hidden-text">
        {t.slots.keys}
      </p>
      <p className="hidden-text" aria-live="polite">
        {cursor !== null && t.slots.describe(describeSlot(map, cursor))}
      </p>
    </div>
  );
}
