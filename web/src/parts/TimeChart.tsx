// One line over time. Drawn by uPlot on a canvas; the label says the same in
// words for those who do not see it.

import "uplot/dist/uPlot.min.css";
import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { scaled } from "../model/format";
import styles from "./TimeChart.module.css";

type Props = { at: number[]; values: number[]; label: string; format: (value: number) => string };

const height = 180;

export default function TimeChart({ at, values, label, format }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const readout = useRef<HTMLParagraphElement>(null);
  const chart = useRef<uPlot | null>(null);
  const data = useRef<uPlot.AlignedData>([at, values]);
  data.current = [at, values];
  const scheme = useComputedColorScheme("light");

  // biome-ignore lint/correctness/useExhaustiveDependencies: colours are read anew when the scheme changes
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const plot = new uPlot(options(element, format, readout.current), data.current, element);
    chart.current = plot;
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
      chart.current = null;
    };
  }, [scheme, format]);

  useEffect(() => {
    chart.current?.setData([at, values]);
  }, [at, values]);

  return (
    <figure className={styles.chart}>
      <div ref={host} role="img" aria-label={label} style={{ height }} />
      <p ref={readout} className={styles.readout} aria-hidden />
    </figure>
  );
}

function options(
  element: HTMLElement,
  format: (value: number) => string,
  readout: HTMLElement | null,
): uPlot.Options {
  const token = (name: string) => getComputedStyle(element).getPropertyValue(name).trim();
  const font = `12px ${token("--sans")}`;
  const axis = {
    stroke: token("--ink-3"),
    font,
    grid: { stroke: token("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: element.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 7, fill: token("--ink") }, drag: { x: false, y: false } },
    scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.15 : 1] } },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 30,
        space: 96,
        incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300],
        values: (_, ticks) => ticks.map((s) => time(s)),
      },
      {
        ...axis,
        size: 56,
        values: (_, ticks) =>
          ticks.map((n) => {
            const { value, unit } = scaled(n);
            return unit ? `${value} ${unit}` : value;
          }),
      },
    ],
    series: [{}, { stroke: token("--ink-2"), width: 1.5, fill: token("--sunken"), points: { show: false } }],
    hooks: {
      setCursor: [
        (plot) => {
          const i = plot.cursor.idx;
          if (!readout) return;
          const x = i == null ? null : plot.data[0][i];
          const y = i == null ? null : plot.data[1]![i];
          readout.textContent = x == null || y == null ? "" : `${time(x)} · ${format(y)} ops/s`;
        },
      ],
    },
  };
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const time = (seconds: number): string => clock.format(seconds * 1000);
