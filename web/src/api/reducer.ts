// The whole page hangs on one snapshot. Events of the stream replace one part
// of it each; this file is the only place that knows how, and is pure, so that
// a recorded stream can be replayed in a test.

import type { Group, Operation, ProxyInfo, SlotRun, Slots, Snapshot, Status } from "./types";

export type StreamEvent =
  | { type: "snapshot"; data: unknown }
  | { type: "status"; data: unknown }
  | { type: "slots"; data: unknown }
  | { type: "groups"; data: unknown }
  | { type: "proxies"; data: unknown }
  | { type: "operations"; data: unknown };

type Listed<T> = { items: T[] } | T[] | null | undefined;

/** Lists come as {"items":[…]}; inside the snapshot either form is read. */
export function itemsOf<T>(list: Listed<T>): T[] {
  if (Array.isArray(list)) return list;
  return list?.items ?? [];
}

function readSlots(data: unknown, slotCount: number, epoch: number): Slots {
  if (Array.isArray(data)) return { epoch, slotCount, items: data as SlotRun[] };
  const slots = data as Partial<Slots> | null;
  return {
    epoch: slots?.epoch ?? epoch,
    slotCount: slots?.slotCount ?? slotCount,
    items: slots?.items ?? [],
  };
}

export function readSnapshot(data: unknown): Snapshot {
  const raw = data as Omit<Snapshot, "groups" | "proxies" | "operations"> & {
    groups: Listed<Group>;
    proxies: Listed<ProxyInfo>;
    operations: Listed<Operation>;
  };
  const groups = itemsOf(raw.groups).map((g) => ({ ...g, nodes: g.nodes ?? [] }));
  return {
    revision: raw.revision,
    cluster: raw.cluster,
    status: readStatus(raw.status),
    slots: readSlots(raw.slots, raw.cluster.slotCount, raw.cluster.epoch),
    groups,
    proxies: itemsOf(raw.proxies),
    operations: itemsOf(raw.operations),
  };
}

function readStatus(status: Status): Status {
  return { ...status, attention: status.attention ?? [], running: status.running ?? [] };
}

/**
 * Puts a newer record of an operation in its place. A summary without moves or
 * log does not wipe the ones already known.
 */
export function mergeOperation(old: Operation | undefined, next: Operation): Operation {
  if (!old) return next;
  return { ...old, ...next, moves: next.moves ?? old.moves, log: next.log ?? old.log };
}

function putOperation(operations: Operation[], next: Operation): Operation[] {
  const at = operations.findIndex((op) => op.id === next.id);
  if (at < 0) return [next, ...operations];
  return operations.map((op, i) => (i === at ? mergeOperation(op, next) : op));
}

/** Null means the event can not be used without a snapshot first. */
export function applyEvent(snapshot: Snapshot | undefined, event: StreamEvent): Snapshot | null {
  if (event.type === "snapshot") return readSnapshot(event.data);
  if (!snapshot) return null;
  switch (event.type) {
    case "status":
      return { ...snapshot, status: readStatus(event.data as Status) };
    case "slots": {
      const slots = readSlots(event.data, snapshot.cluster.slotCount, snapshot.slots.epoch);
      return { ...snapshot, slots, cluster: { ...snapshot.cluster, epoch: slots.epoch } };
    }
    case "groups":
      return {
        ...snapshot,
        groups: itemsOf(event.data as Listed<Group>).map((g) => ({ ...g, nodes: g.nodes ?? [] })),
      };
    case "proxies":
      return { ...snapshot, proxies: itemsOf(event.data as Listed<ProxyInfo>) };
    case "operations": {
      const data = event.data as Operation | { items: Operation[] };
      const list = "items" in data ? data.items : [data];
      return { ...snapshot, operations: list.reduce(putOperation, snapshot.operations) };
    }
  }
}
