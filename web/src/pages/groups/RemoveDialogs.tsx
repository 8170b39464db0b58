import { useLocation } from "wouter";
import { useRemoveGroup, useRemoveNode } from "../../api/data";
import type { Group, Node } from "../../api/types";
import { equivalents } from "../../model/commands";
import { Confirm } from "../../parts/Confirm";
import { t } from "../../text";

type Props = { group: Group; opened: boolean; onClose: () => void };

export function RemoveGroupDialog({ group, opened, onClose }: Props) {
  const [, navigate] = useLocation();
  const remove = useRemoveGroup();
  return (
    <Confirm
      opened={opened}
      onClose={onClose}
      title={t.groups.removeTitle(group.id)}
      verb={t.groups.removeVerb(group.id)}
      equivalent={equivalents.removeGroup(group.id)}
      typed={group.id}
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate(group.id, { onSuccess: (op) => navigate(`/operations/${op.id}`) })}
    >
      <p>{t.groups.removeEffect(group.nodes.length)}</p>
    </Confirm>
  );
}

export function RemoveNodeDialog({
  group,
  node,
  onClose,
}: {
  group: Group;
  node: Node | null;
  onClose: () => void;
}) {
  const [, navigate] = useLocation();
  const remove = useRemoveNode();
  const addr = node?.addr ?? "";
  return (
    <Confirm
      opened={node !== null}
      onClose={onClose}
      title={t.nodes.removeTitle(addr, group.id)}
      verb={t.nodes.removeVerb}
      equivalent={equivalents.removeNode(group.id, addr)}
      typed={addr}
      danger
      busy={remove.isPending}
      error={remove.error}
      onConfirm={() =>
        remove.mutate({ group: group.id, addr }, { onSuccess: (op) => navigate(`/operations/${op.id}`) })
      }
    >
      <p>{t.nodes.removeEffect(group.nodes.length - 1)}</p>
    </Confirm>
  );
}
