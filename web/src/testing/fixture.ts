// A small cluster in the shapes of the API: three groups with slots, one spare.

import type { Group, Operation, Plan, Snapshot } from "../api/types";

export function group(id: string, slots: string, slotCount: number): Group {
  return {
    id,
    slots,
    slotCount,
    state: "ok",
    keys: slotCount * 10,
    memoryBytes: slotCount * 1024,
    maxMemoryBytes: 1 << 30,
    opsPerSecond: slotCount,
    nodes: [
      { addr: `127.0.0.1:71${id.slice(1)}0`, role: "master", observedRole: "master", reachable: true },
      {
        addr: `127.0.0.1:71${id.slice(1)}1`,
        role: "replica",
        observedRole: "replica",
        reachable: true,
        linkUp: true,
        lagBytes: 0,
      },
    ],
  };
}

export const operation: Operation = {
  id: "op-1",
  kind: "migrate",
  goal: "slots",
  state: "running",
  summary: "Rebalance 4 groups: 256 slots",
  moves: [
    {
      slots: "0-85",
      from: "g1",
      to: "g4",
      slotCount: 86,
      state: "done",
      keysDone: 860,
      keysTotal: 860,
      bytesDone: 9000,
      holdMs: 12,
    },
    {
      slots: "342-426",
      from: "g2",
      to: "g4",
      slotCount: 85,
      state: "copying",
      keysDone: 100,
      keysTotal: 850,
      bytesDone: 900,
    },
    {
      slots: "683-767",
      from: "g3",
      to: "g4",
      slotCount: 85,
      state: "pending",
      keysDone: 0,
      keysTotal: 850,
      bytesDone: 0,
    },
  ],
  progress: {
    fraction: 0.37,
    slotsDone: 86,
    slotsTotal: 256,
    keysDone: 960,
    keysTotal: 2560,
    bytesDone: 9900,
    bytesTotal: 26_000,
    keysPerSecond: 500,
    bytesPerSecond: 5000,
    etaSeconds: 4,
  },
  limits: {},
  log: [{ at: "2026-01-01T00:00:00Z", text: "started" }],
  createdBy: "admin",
  createdAt: "2026-01-01T00:00:00Z",
  startedAt: "2026-01-01T00:00:00Z",
  actions: ["pause", "cancel"],
};

export const plan: Plan = {
  id: "plan-1",
  goal: "slots",
  baseEpoch: 7,
  moves: [
    { slots: "0-85", from: "g1", to: "g4", slotCount: 86 },
    { slots: "342-426", from: "g2", to: "g4", slotCount: 85 },
    { slots: "683-767", from: "g3", to: "g4", slotCount: 85 },
  ],
  before: [
    { group: "g1", slots: 342, keys: 3420, bytes: 342_000 },
    { group: "g2", slots: 341, keys: 3410, bytes: 341_000 },
    { group: "g3", slots: 341, keys: 3410, bytes: 341_000 },
    { group: "g4", slots: 0, keys: 0, bytes: 0 },
  ],
  after: ["g1", "g2", "g3", "g4"].map((id) => ({ group: id, slots: 256, keys: 2560, bytes: 256_000 })),
  estimate: { slots: 256, keys: 2560, bytes: 256_000, seconds: 9 },
  checks: [{ name: "Nodes reachable", result: "pass", detail: "all answered" }],
  createdAt: "2026-01-01T00:00:00Z",
  expiresAt: "2999-01-01T00:00:00Z",
  summary: "Moves 256 of 1024 slots.",
};

export function snapshot(): Snapshot {
  return {
    revision: 100,
    cluster: {
      id: "c",
      name: "demo",
      scheme: "crc32/1024",
      slotCount: 1024,
      epoch: 7,
      revision: 100,
      version: "0",
    },
    status: {
      summary: "All 1024 slots served.",
      health: "ok",
      leader: "coordinator-1",
      slots: { total: 1024, served: 1024, held: 0 },
      opsPerSecond: 1000,
      keys: 10_240,
      memoryBytes: 1 << 20,
      clients: 8,
      attention: [],
      running: [],
    },
    slots: {
      epoch: 7,
      slotCount: 1024,
      items: [
        { slots: "0-341", group: "g1", state: "online" },
        { slots: "342-682", group: "g2", state: "online" },
        { slots: "683-1023", group: "g3", state: "online" },
      ],
    },
    groups: [
      group("g1", "0-341", 342),
      group("g2", "342-682", 341),
      group("g3", "683-1023", 341),
      group("g4", "", 0),
    ],
    proxies: [
      {
        id: "proxy-1",
        addr: "127.0.0.1:7000",
        state: "serving",
        appliedEpoch: 7,
        epochLag: 0,
        opsPerSecond: 1000,
        clients: 8,
        p50Ms: 0.2,
        p99Ms: 1.1,
        memoryBytes: 1 << 24,
        cpuPercent: 12,
      },
    ],
    operations: [],
  };
}
