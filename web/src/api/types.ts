// The shapes of /api/v1, written by hand after the REST description. Fields
// that a server may leave out are optional; numbers are plain (bytes,
// milliseconds, ratios 0 to 1), and slots are always range strings such as
// "0-99,512".

export type Role = "viewer" | "operator" | "admin";
export type User = { name: string; role: Role };
export type AuthState = { setupNeeded: boolean; user: User | null; cluster?: { name: string } };

export type Cluster = {
  id: string;
  name: string;
  scheme: string;
  slotCount: number;
  databases?: number;
  epoch: number;
  revision: number;
  version: string;
};

export type Attention = {
  severity: "warn" | "critical";
  title: string;
  detail?: string;
  since?: string;
  link?: string;
};

export type Status = {
  summary: string;
  health: "ok" | "attention" | "critical";
  leader: string | null;
  slots: { total: number; served: number; held: number };
  opsPerSecond: number;
  keys: number;
  memoryBytes: number;
  clients: number;
  attention: Attention[];
  running: Operation[];
};

export type SlotState = "online" | "held" | "unassigned" | "moving";
export type SlotRun = { slots: string; group: string; state: SlotState; to?: string };
export type Slots = { epoch: number; slotCount: number; items: SlotRun[] };
export type SlotLookup = { key: string; tag: string; slot: number; group: string; master: string };

export type NodeRole = "master" | "replica";
export type Node = {
  addr: string;
  role: NodeRole;
  observedRole?: string;
  reachable: boolean;
  error?: string;
  linkUp?: boolean;
  lagBytes?: number;
  version?: string;
  memoryBytes?: number;
  maxMemoryBytes?: number;
  keys?: number;
  opsPerSecond?: number;
  clients?: number;
  zone?: string;
  runId?: string;
  seenAt?: string;
};

export type Group = {
  id: string;
  slotCount: number;
  slots: string;
  state: "ok" | "attention" | "down" | "draining";
  keys: number;
  memoryBytes: number;
  maxMemoryBytes: number;
  opsPerSecond: number;
  problem?: string;
  nodes: Node[];
};

export type ProxyInfo = {
  id: string;
  addr: string;
  admin?: string;
  state: "serving" | "starting" | "draining" | "evicting" | "down";
  incarnation?: string;
  version?: string;
  startedAt?: string;
  appliedEpoch: number;
  epochLag: number;
  opsPerSecond: number;
  clients: number;
  p50Ms: number;
  p99Ms: number;
  memoryBytes: number;
  cpuPercent: number;
  errorsPerSecond?: number;
  pid?: number;
  problem?: string; // why there are no fresh figures
  unreachable?: string[]; // nodes it can not reach
};

export type ProxyDetail = ProxyInfo & {
  table?: { epoch: number; items: { slots: string; group: string; node?: string; held?: boolean }[] };
  commands?: { name: string; calls: number; errors: number }[];
  backends?: {
    group: string;
    node: string;
    state: string;
    connections: number;
    inflight: number;
    requests: number;
    error?: string;
  }[];
};

export type Goal = "slots" | "drain" | "move" | "assign";
export type PlanRequest =
  | { goal: "slots"; groups?: string[] }
  | { goal: "drain"; groups: string[] }
  | { goal: "assign"; groups: string[] }
  | { goal: "move"; slots: string; toGroup: string };

export type Move = { slots: string; from: string; to: string; slotCount: number };
export type Share = { group: string; slots: number; keys: number; bytes: number };
export type Check = { name: string; result: "pass" | "warn" | "fail"; detail: string };

export type Plan = {
  id: string;
  goal: Goal;
  baseEpoch: number;
  moves: Move[];
  before: Share[];
  after: Share[];
  estimate: { slots: number; keys: number; bytes: number; seconds: number | null };
  checks: Check[];
  createdAt: string;
  expiresAt: string;
  summary: string;
};

export type OperationState =
  | "queued"
  | "running"
  | "paused"
  | "cancelling"
  | "succeeded"
  | "failed"
  | "cancelled";

export type MoveState =
  | "pending"
  | "preparing"
  | "copying"
  | "catching-up"
  | "handing-over"
  | "purging"
  | "done"
  | "parked"
  | "failed"
  | "cancelled";

export type MoveProgress = Move & {
  state: MoveState;
  keysDone: number;
  keysTotal: number;
  bytesDone: number;
  holdMs?: number;
  attempts?: number;
  reason?: string;
};

export type Progress = {
  fraction: number;
  slotsDone: number;
  slotsTotal: number;
  keysDone: number;
  keysTotal: number;
  bytesDone: number;
  bytesTotal: number;
  keysPerSecond: number;
  bytesPerSecond: number;
  etaSeconds: number | null;
};

export type OperationAction = "pause" | "resume" | "cancel";

export type Operation = {
  id: string;
  kind: string;
  goal?: Goal | "";
  state: OperationState;
  summary: string;
  reason?: string;
  plan?: string;
  group?: string;
  moves?: MoveProgress[];
  progress?: Progress;
  limits?: { bytesPerSecond?: number };
  log?: { at: string; text: string }[];
  createdBy?: string;
  createdAt?: string;
  startedAt?: string;
  updatedAt?: string;
  finishedAt?: string;
  actions?: OperationAction[];
};

export type ProbeCheck = { name: string; result: "pass" | "warn" | "fail"; detail: string };
export type Probe = { addr: string; ok: boolean; checks: ProbeCheck[] };

export type NewGroup = {
  id: string;
  nodes: { addr: string; role?: NodeRole; zone?: string }[];
  user?: string;
  password?: string;
};

export type Snapshot = {
  revision: number;
  cluster: Cluster;
  status: Status;
  slots: Slots;
  groups: Group[];
  proxies: ProxyInfo[];
  operations: Operation[];
};

export type ProblemDocument = {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  instance?: string;
  code?: string;
  hint?: string;
  errors?: { pointer?: string; detail: string }[];
};
