// Results of checks, by icon and word, never by colour alone.

import { Check as Tick, TriangleAlert, X } from "lucide-react";
import { t } from "../text";
import styles from "./parts.module.css";

type Item = { name: string; result: "pass" | "warn" | "fail"; detail: string };
const icons = { pass: Tick, warn: TriangleAlert, fail: X };

export function Checks({ items }: { items: Item[] }) {
  return (
    <ul className={styles.checks}>
      {items.map((item) => {
        const Icon = icons[item.result] ?? TriangleAlert;
        return (
          <li key={`${item.name} ${item.detail}`} data-result={item.result}>
            <Icon size={16} aria-hidden />
            <span className="hidden-text">{t.checks[item.result] ?? item.result}: </span>
            <span className={styles.checkName}>{item.name}</span>
            <span className="quiet">{item.detail}</span>
          </li>
        );
      })}
    </ul>
  );
}
