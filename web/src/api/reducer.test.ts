import { describe, expect, it } from "vitest";
import { operation, snapshot } from "../testing/fixture";
import { applyEvent, readSnapshot } from "./reducer";

const wire = () => {
  const s = snapshot();
  return { ...s, groups: { items: s.groups }, proxies: { items: s.proxies }, operations: { items: [] } };
};

describe("stream reducer", () => {
  it("reads a snapshot whose lists are wrapped or plain", () => {
    expect(readSnapshot(wire())).toEqual(snapshot());
    expect(readSnapshot(snapshot())).toEqual(snapshot());
  });

  it("needs a snapshot before anything else", () => {
    expect(applyEvent(undefined, { type: "status", data: {} })).toBeNull();
    expect(applyEvent(undefined, { type: "snapshot", data: wire() })?.groups).toHaveLength(4);
  });

  it("replaces one part and leaves the others the same objects", () => {
    const before = snapshot();
    const after = applyEvent(before, {
      type: "slots",
      data: { epoch: 8, slotCount: 1024, items: [{ slots: "0-1023", group: "g4", state: "online" }] },
    })!;
    expect(after.slots.items).toHaveLength(1);
    expect(after.cluster.epoch).toBe(8);
    expect(after.groups).toBe(before.groups);
    expect(after.proxies).toBe(before.proxies);
  });

  it("puts new operations first and updates known ones in place", () => {
    let s = applyEvent(snapshot(), { type: "operations", data: operation })!;
    s = applyEvent(s, { type: "operations", data: { ...operation, id: "op-2" } })!;
    expect(s.operations.map((o) => o.id)).toEqual(["op-2", "op-1"]);
    s = applyEvent(s, { type: "operations", data: { items: [{ ...operation, state: "paused" }] } })!;
    expect(s.operations.map((o) => o.state)).toEqual(["running", "paused"]);
  });

  it("keeps moves and log when a summary comes without them", () => {
    let s = applyEvent(snapshot(), { type: "operations", data: operation })!;
    const { moves: _, log: __, ...summary } = operation;
    s = applyEvent(s, { type: "operations", data: { ...summary, state: "succeeded" } })!;
    expect(s.operations[0]).toMatchObject({ state: "succeeded", moves: operation.moves, log: operation.log });
  });

  it("stands null lists, as Go writes empty ones", () => {
    const raw = { ...wire(), groups: null, operations: { items: null } };
    const s = readSnapshot({ ...raw, status: { ...raw.status, attention: null, running: null } });
    expect([s.groups, s.operations, s.status.attention]).toEqual([[], [], []]);
  });
});
