import { Button } from "@mantine/core";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { useSnapshot } from "../../api/data";
import type { Group, Slots } from "../../api/types";
import { integer } from "../../model/format";
import { naturalOrder } from "../../model/palette";
import { emptySelection, extend, press, selectRanges } from "../../model/selection";
import { buildSlotMap, countOwners, countStates, describeSlot } from "../../model/slotmap";
import { PageHead } from "../../parts/PageHead";
import { Empty, Region } from "../../parts/Region";
import { t } from "../../text";
import { Finder } from "./Finder";
import { Legend } from "./Legend";
import { RunTable } from "./RunTable";
import { SelectionBar } from "./SelectionBar";
import { SlotCanvas } from "./SlotCanvas";
import styles from "./Slots.module.css";

export function SlotsPage() {
  const query = useSnapshot((s) => ({ slots: s.slots, groups: s.groups, scheme: s.cluster.scheme }));
  return (
    <>
      <PageHead
        title={t.frame.places.slots}
        sub={query.data && t.slots.sub(integer(query.data.slots.slotCount), query.data.scheme)}
      />
      <Region query={query} height={640}>
        {({ slots, groups }) => <Explorer slots={slots} groups={groups} />}
      </Region>
    </>
  );
}

function Explorer({ slots, groups }: { slots: Slots; groups: Group[] }) {
  const ids = naturalOrder(groups.map((g) => g.id)).join("\n");
  const map = useMemo(
    () => buildSlotMap(slots.items, slots.slotCount, ids.split("\n").filter(Boolean), slots.epoch),
    [slots, ids],
  );
  const [selection, setSelection] = useState(emptySelection);
  const [pointed, setPointed] = useState<string | null>(null);
  const [hover, setHover] = useState<number | null>(null);
  const [blink, setBlink] = useState<number | null>(null);

  const owners = countOwners(map);
  const states = countStates(map);
  const clear = () => {
    setSelection(emptySelection);
    setBlink(null);
  };
  const summary = t.slots.summary(
    integer(map.slotCount),
    map.groups.map((id) => `${id} ${integer(owners[id])}`).join(", "),
    integer(states.moving + states.held),
    integer(states.unassigned),
  );

  return (
    <div className={styles.page}>
      {states.unassigned === map.slotCount && (
        <div className="panel">
          <Empty title={groups.length ? t.slots.noneAssigned : t.slots.noGroups}>
            {groups.length ? (
              <Button component={Link} href="/rebalance?goal=assign">
                {t.slots.spread(integer(map.slotCount), groups.length)}
              </Button>
            ) : (
              <Button component={Link} href="/groups/new">
                {t.groups.add}
              </Button>
            )}
          </Empty>
        </div>
      )}
      <div className={styles.explorer}>
        <div className={styles.mapColumn}>
          <SlotCanvas
            map={map}
            summary={summary}
            owners={JSON.stringify(Object.fromEntries(Object.entries(owners).filter(([, n]) => n > 0)))}
            selection={selection.ranges}
            dimOthers={pointed}
            blink={blink}
            onPress={(slot, add) => {
              setBlink(null);
              setSelection((old) => press(old, slot, add));
            }}
            onExtend={(slot) => setSelection((old) => extend(old, slot))}
            onClear={clear}
            onHover={setHover}
          />
          <p className={styles.readout} aria-hidden>
            {hover === null ? t.slots.hoverHint : t.slots.describe(describeSlot(map, hover))}
          </p>
        </div>
        <aside className={styles.side}>
          <Legend map={map} onPoint={setPointed} />
          <Finder
            slotCount={map.slotCount}
            onSlots={(ranges) => setSelection(selectRanges(ranges))}
            onKey={(found) => {
              setSelection(emptySelection);
              setBlink(found.slot);
            }}
          />
        </aside>
      </div>
      {selection.ranges.length > 0 && (
        <SelectionBar map={map} ranges={selection.ranges} groups={groups.map((g) => g.id)} onClear={clear} />
      )}
      <RunTable runs={slots.items} />
    </div>
  );
}
