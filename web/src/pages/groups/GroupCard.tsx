import { CircleAlert } from "lucide-react";
import { Link } from "wouter";
import type { Group, Node } from "../../api/types";
import { bytes, count, integer, percent, ratePerSecond } from "../../model/format";
import { groupTone } from "../../model/states";
import { Fact, Meter } from "../../parts/figures";
import { GroupMark, useGroupColor } from "../../parts/groups";
import { State } from "../../parts/State";
import { t } from "../../text";
import styles from "./Groups.module.css";

export function GroupCard({ group, slotCount }: { group: Group; slotCount: number }) {
  const colorOf = useGroupColor();
  const tone = groupTone(group.state);
  const ops = ratePerSecond(group.opsPerSecond);
  const ratio = group.maxMemoryBytes > 0 ? group.memoryBytes / group.maxMemoryBytes : null;
  return (
    <article
      className={`panel ${styles.card}`}
      style={{ borderTopColor: colorOf(group.id) }}
      data-tone={tone}
      data-slots={group.slotCount}
      data-testid={`group-card-${group.id}`}
    >
      <header className="spread">
        <h2>
          <Link href={`/groups/${encodeURIComponent(group.id)}`} className={styles.name}>
            <GroupMark id={group.id} strong />
          </Link>
        </h2>
        <State tone={tone}>{t.groupState[group.state]}</State>
      </header>
      {group.problem && (
        <p className={styles.problem}>
          <CircleAlert size={15} aria-hidden /> {group.problem}
        </p>
      )}
      <dl className={styles.figures}>
        <Fact label={t.groups.slots}>
          {t.slots.count(integer(group.slotCount))}{" "}
          <span className="quiet">· {percent(slotCount ? group.slotCount / slotCount : 0)}</span>
        </Fact>
        <Fact label={t.groups.load}>
          {ops.value} {ops.unit}
        </Fact>
        <Fact label={t.groups.keys}>{count(group.keys)}</Fact>
      </dl>
      <div>
        <p className="spread small">
          <span className="quiet">{t.groups.memory}</span>
          <span>
            {bytes(group.memoryBytes)}
            {group.maxMemoryBytes > 0 && (
              <span className="quiet"> {t.groups.ofMax(bytes(group.maxMemoryBytes))}</span>
            )}
          </span>
        </p>
        {ratio !== null && <Meter ratio={ratio} label={t.groups.memory} />}
      </div>
      <ul className={styles.nodes}>
        {group.nodes.map((node) => (
          <NodeLine key={node.addr} node={node} />
        ))}
      </ul>
    </article>
  );
}

/** A node in one line: who it is and how far behind. */
function NodeLine({ node }: { node: Node }) {
  const wrongRole = !!node.observedRole && node.observedRole !== node.role;
  const cut = node.role === "replica" && node.linkUp === false;
  const bad = !node.reachable || wrongRole || cut;
  const word = !node.reachable
    ? t.nodes.unreachable
    : wrongRole
      ? t.nodes.wrongRole(node.observedRole!)
      : node.role === "replica"
        ? cut
          ? t.nodes.linkDown
          : t.nodes.behind(bytes(node.lagBytes))
        : "";
  return (
    <li data-bad={bad || undefined}>
      <span className={styles.role}>{t.nodes.role[node.role] ?? node.role}</span>
      <code>{node.addr}</code>
      <span className={styles.word}>{word}</span>
    </li>
  );
}
