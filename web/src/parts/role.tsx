// What the signed-in person may do. Things out of reach stay visible, disabled
// and with a sentence, so that people know they exist.

import { Tooltip } from "@mantine/core";
import { createContext, type ReactElement, useContext } from "react";
import type { Role, User } from "../api/types";
import { t } from "../text";

const order: Role[] = ["viewer", "operator", "admin"];
const Person = createContext<User>({ name: "", role: "viewer" });

export const PersonProvider = Person.Provider;
export const usePerson = (): User => useContext(Person);
export const useMay = (role: Role): boolean => order.indexOf(usePerson().role) >= order.indexOf(role);

/** Wraps a disabled control with the reason why it is. */
export function Why({ reason, children }: { reason: string | null; children: ReactElement }) {
  if (!reason) return children;
  return (
    <Tooltip label={reason} multiline maw={280}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a disabled button takes no focus, its reason must */}
      <span tabIndex={0} role="note" aria-label={reason} style={{ display: "inline-flex" }}>
        {children}
      </span>
    </Tooltip>
  );
}

export const useReasonAgainst = (role: Role): string | null =>
  useMay(role) ? null : t.common.needsRole(role);
