import { Button, NativeSelect } from "@mantine/core";
import { useState } from "react";
import { useLocation } from "wouter";
import { integer } from "../../model/format";
import { countSlots, formatRanges, type Range } from "../../model/ranges";
import { ownersOf, type SlotMap } from "../../model/slotmap";
import { queryFor } from "../../model/wizard";
import { GroupMark } from "../../parts/groups";
import { RangeText } from "../../parts/RangeText";
import { useReasonAgainst, Why } from "../../parts/role";
import { t } from "../../text";
import styles from "./Slots.module.css";

type Props = { map: SlotMap; ranges: Range[]; groups: string[]; onClear: () => void };

/** What is selected, whose it is, and the one verb for it. */
export function SelectionBar({ map, ranges, groups, onClear }: Props) {
  const [, navigate] = useLocation();
  const [to, setTo] = useState("");
  const owners = ownersOf(map, ranges);
  const total = countSlots(ranges);
  const orphan = owners.some((o) => o.group === "");
  const already = owners.length === 1 && owners[0]!.group === to;
  const role = useReasonAgainst("operator");
  const reason =
    role ?? (orphan ? t.slots.orphans : !to ? t.slots.chooseTarget : already ? t.slots.already(to) : null);

  return (
    <section className={styles.selection} aria-label={t.slots.selection} data-testid="slot-selection">
      <div>
        <strong>{t.slots.selected(integer(total), total)}</strong> <RangeText slots={formatRanges(ranges)} />
        <ul className="row small">
          {owners.slice(0, 6).map((o) => (
            <li key={o.group} className="row">
              <GroupMark id={o.group} /> <span className="quiet">{integer(o.slots)}</span>
            </li>
          ))}
        </ul>
      </div>
      <div className="row">
        <NativeSelect
          aria-label={t.slots.target}
          size="sm"
          value={to}
          onChange={(event) => setTo(event.currentTarget.value)}
          data={[
            { value: "", label: t.slots.targetChoose },
            ...groups.map((g) => ({ value: g, label: t.slots.toGroup(g) })),
          ]}
          data-testid="slot-target"
        />
        <Why reason={reason}>
          <Button
            disabled={reason !== null}
            onClick={() =>
              navigate(`/rebalance?${queryFor({ goal: "move", slots: formatRanges(ranges), toGroup: to })}`)
            }
            data-testid="slot-plan-move"
          >
            {t.slots.planMove}
          </Button>
        </Why>
        <Button variant="subtle" onClick={onClear}>
          {t.slots.clear}
        </Button>
      </div>
    </section>
  );
}
