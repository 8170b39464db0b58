import { ActionIcon, Menu } from "@mantine/core";
import { Ellipsis } from "lucide-react";
import { useState } from "react";
import { useNow } from "../../api/now";
import type { Group, Node } from "../../api/types";
import { ago, bytes, count, integer } from "../../model/format";
import type { Tone } from "../../model/states";
import { useReasonAgainst } from "../../parts/role";
import { State } from "../../parts/State";
import { t } from "../../text";
import styles from "./Groups.module.css";
import { RemoveNodeDialog } from "./RemoveDialogs";

function standing(node: Node): { tone: Tone; word: string } {
  if (!node.reachable) return { tone: "bad", word: t.nodes.unreachable };
  if (node.observedRole && node.observedRole !== node.role) {
    return { tone: "bad", word: t.nodes.wrongRole(node.observedRole) };
  }
  if (node.role === "replica" && node.linkUp === false) return { tone: "warn", word: t.nodes.linkDown };
  return { tone: "neutral", word: t.nodes.ok };
}

export function NodeTable({ group }: { group: Group }) {
  const [removing, setRemoving] = useState<Node | null>(null);
  const c = t.nodes.columns;
  return (
    <section className="panel" aria-labelledby="nodes">
      <div className="panel-head">
        <h2 id="nodes">{t.nodes.title}</h2>
        <span className="quiet small">{t.nodes.count(group.nodes.length)}</span>
      </div>
      <div className="table-scroll">
        <table className="table cards">
          <caption className="hidden-text">{t.nodes.title}</caption>
          <thead>
            <tr>
              <th scope="col">{c.address}</th>
              <th scope="col">{c.role}</th>
              <th scope="col">{c.state}</th>
              <th scope="col" className="num">
                {c.lag}
              </th>
              <th scope="col" className="num">
                {c.memory}
              </th>
              <th scope="col" className="num">
                {c.keys}
              </th>
              <th scope="col" className="num">
                {c.ops}
              </th>
              <th scope="col" className="num">
                {c.clients}
              </th>
              <th scope="col">{c.version}</th>
              <th scope="col">{c.zone}</th>
              <th scope="col">
                <span className="hidden-text">{c.actions}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {group.nodes.map((node) => (
              <Row key={node.addr} node={node} group={group} onRemove={() => setRemoving(node)} />
            ))}
          </tbody>
        </table>
      </div>
      <RemoveNodeDialog group={group} node={removing} onClose={() => setRemoving(null)} />
    </section>
  );
}

function Row({ node, group, onRemove }: { node: Node; group: Group; onRemove: () => void }) {
  const now = useNow();
  const role = useReasonAgainst("operator");
  const { tone, word } = standing(node);
  const c = t.nodes.columns;
  const reason = role ?? (node.role === "master" ? t.nodes.masterStays : null);
  return (
    <tr data-testid={`node-row-${node.addr}`}>
      <td data-label={c.address}>
        <code>{node.addr}</code>
      </td>
      <td data-label={c.role}>{t.nodes.role[node.role] ?? node.role}</td>
      <td data-label={c.state}>
        <span>
          <State tone={tone}>{word}</State>
          {node.error && <span className={styles.nodeError}>{node.error}</span>}
          {!node.reachable && node.seenAt && (
            <span className="quiet small"> {t.nodes.seen(ago(node.seenAt, now))}</span>
          )}
        </span>
      </td>
      <td data-label={c.lag} className="num">
        {node.role === "replica" ? bytes(node.lagBytes) : ""}
      </td>
      <td data-label={c.memory} className="num">
        {bytes(node.memoryBytes)}
        {!!node.maxMemoryBytes && <span className="quiet"> / {bytes(node.maxMemoryBytes)}</span>}
      </td>
      <td data-label={c.keys} className="num">
        {count(node.keys)}
      </td>
      <td data-label={c.ops} className="num">
        {count(node.opsPerSecond)}
      </td>
      <td data-label={c.clients} className="num">
        {integer(node.clients)}
      </td>
      <td data-label={c.version}>{node.version}</td>
      <td data-label={c.zone}>{node.zone}</td>
      <td data-label={c.actions}>
        <Menu position="bottom-end" width={280}>
          <Menu.Target>
            <ActionIcon variant="subtle" size={26} aria-label={t.nodes.menu(node.addr)}>
              <Ellipsis size={16} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item disabled={reason !== null} onClick={onRemove}>
              {t.nodes.remove(group.id)}
            </Menu.Item>
            {reason && <Menu.Label>{reason}</Menu.Label>}
          </Menu.Dropdown>
        </Menu>
      </td>
    </tr>
  );
}
