import { Button } from "@mantine/core";
import { Plus } from "lucide-react";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { useSnapshot } from "../../api/data";
import type { Group } from "../../api/types";
import { bytes, count, integer, percent, ratePerSecond } from "../../model/format";
import { groupTone } from "../../model/states";
import { queryFor } from "../../model/wizard";
import { Fact } from "../../parts/figures";
import { PageHead } from "../../parts/PageHead";
import { RangeText } from "../../parts/RangeText";
import { Empty, Partial, Region } from "../../parts/Region";
import { useReasonAgainst, Why } from "../../parts/role";
import { State } from "../../parts/State";
import { t } from "../../text";
import { AddNodeDialog } from "./AddNodeDialog";
import styles from "./Groups.module.css";
import { NodeTable } from "./NodeTable";
import { RemoveGroupDialog } from "./RemoveDialogs";

export function GroupPage({ id }: { id: string }) {
  const query = useSnapshot((s) => ({
    group: s.groups.find((g) => g.id === id),
    others: s.groups.length - 1,
    slotCount: s.slots.slotCount,
  }));
  const group = query.data?.group;
  return (
    <>
      <PageHead title={t.groups.title(id)} back={{ href: "/groups", label: t.frame.places.groups }}>
        {group && <Verbs group={group} others={query.data?.others ?? 0} />}
      </PageHead>
      <Region query={query} height={320}>
        {(data) =>
          data.group ? (
            <Details group={data.group} slotCount={data.slotCount} />
          ) : (
            <div className="panel">
              <Empty title={t.groups.missing(id)} />
            </div>
          )
        }
      </Region>
    </>
  );
}

function Verbs({ group, others }: { group: Group; others: number }) {
  const [, navigate] = useLocation();
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState(false);
  const role = useReasonAgainst("operator");
  const noDrain =
    role ?? (group.slotCount === 0 ? t.groups.nothingToDrain : others === 0 ? t.groups.onlyGroup : null);
  const noRemove = role ?? (group.slotCount > 0 ? t.groups.stillOwns(integer(group.slotCount)) : null);
  return (
    <>
      <Why reason={role}>
        <Button
          variant="default"
          leftSection={<Plus size={15} />}
          disabled={role !== null}
          onClick={() => setAdding(true)}
          data-testid="node-add"
        >
          {t.nodes.add}
        </Button>
      </Why>
      <Why reason={noDrain}>
        <Button
          variant="default"
          disabled={noDrain !== null}
          onClick={() => navigate(`/rebalance?${queryFor({ goal: "drain", drain: [group.id] })}`)}
          data-testid="group-drain"
        >
          {t.groups.drain}
        </Button>
      </Why>
      <Why reason={noRemove}>
        <Button
          variant="default"
          disabled={noRemove !== null}
          onClick={() => setRemoving(true)}
          data-testid="group-remove"
        >
          {t.groups.remove}
        </Button>
      </Why>
      <AddNodeDialog group={group.id} opened={adding} onClose={() => setAdding(false)} />
      <RemoveGroupDialog group={group} opened={removing} onClose={() => setRemoving(false)} />
    </>
  );
}

function Details({ group, slotCount }: { group: Group; slotCount: number }) {
  const ops = ratePerSecond(group.opsPerSecond);
  const silent = group.nodes.filter((n) => !n.reachable).length;
  return (
    <div className="stack">
      <section className="panel panel-body stack">
        <State tone={groupTone(group.state)}>{t.groupState[group.state]}</State>
        {group.problem && <Partial>{group.problem}</Partial>}
        <dl className={styles.figures}>
          <Fact label={t.groups.slots}>
            {t.slots.count(integer(group.slotCount))}{" "}
            <span className="quiet">· {percent(slotCount ? group.slotCount / slotCount : 0)}</span>
          </Fact>
          <Fact label={t.groups.load}>
            {ops.value} {ops.unit}
          </Fact>
          <Fact label={t.groups.keys}>{count(group.keys)}</Fact>
          <Fact label={t.groups.memory}>
            {bytes(group.memoryBytes)}{" "}
            <span className="quiet">
              {group.maxMemoryBytes > 0 ? t.groups.ofMax(bytes(group.maxMemoryBytes)) : t.groups.noMax}
            </span>
          </Fact>
        </dl>
        <Fact label={t.groups.ranges}>
          <RangeText slots={group.slots} keep={12} />{" "}
          {group.slotCount > 0 && (
            <Link href="/slots" className="small">
              {t.groups.onMap}
            </Link>
          )}
        </Fact>
        {group.slotCount > 0 && <p className="quiet small">{t.groups.stillOwns(integer(group.slotCount))}</p>}
      </section>
      {silent > 0 && <Partial>{t.nodes.partial(group.nodes.length - silent, group.nodes.length)}</Partial>}
      <NodeTable group={group} />
    </div>
  );
}
