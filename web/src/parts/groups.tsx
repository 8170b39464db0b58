// How a group looks: its colour, the same everywhere, always beside its id.

import { useComputedColorScheme } from "@mantine/core";
import { createContext, type ReactNode, useContext, useMemo } from "react";
import { useSnapshot } from "../api/data";
import { assignColors, colorAt, type Scheme } from "../model/palette";
import { t } from "../text";
import styles from "./parts.module.css";

type ColorOf = (group: string) => string;
const Colors = createContext<ColorOf>(() => "currentColor");

/** Ids of groups that exist or still own or receive slots, in one string. */
const idsOf = (ids: string[]) => [...new Set(ids)].join("\n");

export function GroupColors({ children }: { children: ReactNode }) {
  const scheme: Scheme = useComputedColorScheme("light");
  const { data: ids = "" } = useSnapshot((s) =>
    idsOf([...s.groups.map((g) => g.id), ...s.slots.items.map((r) => r.group).filter(Boolean)]),
  );
  const colorOf = useMemo<ColorOf>(() => {
    const indexes = assignColors(ids.split("\n").filter(Boolean));
    return (group) => {
      const index = indexes.get(group);
      return index === undefined ? "var(--line-strong)" : colorAt(index, scheme);
    };
  }, [ids, scheme]);
  return <Colors.Provider value={colorOf}>{children}</Colors.Provider>;
}

export const useGroupColor = (): ColorOf => useContext(Colors);

export function GroupMark({ id, strong }: { id: string; strong?: boolean }) {
  const colorOf = useGroupColor();
  if (!id) return <span className="quiet">{t.common.nobody}</span>;
  return (
    <span className={styles.groupMark} data-strong={strong || undefined}>
      <span className={styles.swatch} style={{ background: colorOf(id) }} aria-hidden />
      {id}
    </span>
  );
}
