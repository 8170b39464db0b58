import { TextInput } from "@mantine/core";
import { useState } from "react";
import { useLocation } from "wouter";
import { useAddNode } from "../../api/data";
import { readAddresses } from "../../model/addresses";
import { equivalents } from "../../model/commands";
import { Confirm } from "../../parts/Confirm";
import { t } from "../../text";

type Props = { group: string; opened: boolean; onClose: () => void };

export function AddNodeDialog({ group, opened, onClose }: Props) {
  const [, navigate] = useLocation();
  const [addr, setAddr] = useState("");
  const [zone, setZone] = useState("");
  const add = useAddNode();
  const { addresses, faults } = readAddresses(addr);
  const one = addresses.length === 1 && faults.length === 0 ? addresses[0]! : null;
  return (
    <Confirm
      opened={opened}
      onClose={onClose}
      title={t.nodes.addTitle(group)}
      verb={t.nodes.addVerb(group)}
      equivalent={one ? equivalents.addNode(group, one) : undefined}
      busy={add.isPending}
      blocked={!one}
      error={add.error}
      onConfirm={() => {
        if (!one) return;
        add.mutate(
          { group, addr: one, zone: zone.trim() || undefined },
          { onSuccess: (op) => navigate(`/operations/${op.id}`) },
        );
      }}
      testId="node-add-confirm"
    >
      <p>{t.nodes.addEffect(group)}</p>
      <TextInput
        label={t.nodes.columns.address}
        placeholder="10.0.0.20:6379"
        value={addr}
        onChange={(event) => setAddr(event.currentTarget.value)}
        error={faults.length ? t.groups.badAddress(faults[0]!) : undefined}
        data-testid="node-add-addr"
      />
      <TextInput
        label={t.nodes.zoneOptional}
        value={zone}
        onChange={(event) => setZone(event.currentTarget.value)}
      />
    </Confirm>
  );
}
