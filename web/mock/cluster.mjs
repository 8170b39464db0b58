// An imitation cluster for working on the page without servers: a few groups,
// proxies, and operations that advance. Development only; tests of the product
// run against the real thing.

const GiB = 2 ** 30;
const MiB = 2 ** 20;
const iso = (ms = Date.now()) => new Date(ms).toISOString();

const format = (slots) => {
  const out = [];
  for (let i = 0; i < slots.length; ) {
    let j = i;
    while (j + 1 < slots.length && slots[j + 1] === slots[j] + 1) j++;
    out.push(i === j ? `${slots[i]}` : `${slots[i]}-${slots[j]}`);
    i = j + 1;
  }
  return out.join(",");
};
export const parse = (text) =>
  text
    .split(",")
    .filter(Boolean)
    .flatMap((part) => {
      const [a, b = a] = part.split("-").map(Number);
      return Array.from({ length: b - a + 1 }, (_, i) => a + i);
    });

export class Cluster {
  constructor({ slotCount = 16384, empty = false, trouble = false } = {}) {
    this.slotCount = slotCount;
    this.epoch = 42;
    this.revision = 9000;
    this.trouble = trouble;
    this.groups = new Map();
    this.owner = new Array(slotCount).fill("");
    this.moving = new Map(); // slot → target
    this.held = new Set();
    this.plans = new Map();
    this.operations = [];
    this.started = Date.now() - 3.4 * 86_400_000;
    this.wave = 0;
    if (!empty) {
      for (const [i, id] of ["g1", "g2", "g3", "g4"].entries())
        this.addGroup(id, [`10.0.0.${11 + 2 * i}:6379`, `10.0.0.${12 + 2 * i}:6379`]);
      const third = Math.ceil(slotCount / 3);
      this.owner = this.owner.map((_, slot) => `g${Math.floor(slot / third) + 1}`);
      this.finishedExamples();
    }
  }

  addGroup(id, addrs) {
    this.groups.set(id, {
      id,
      nodes: addrs.map((addr, i) => ({ addr, role: i === 0 ? "master" : "replica", zone: i ? "b" : "a" })),
    });
  }

  finishedExamples() {
    const base = { reason: "", createdBy: "ops", limits: {}, actions: [], log: [] };
    this.operations.push(
      {
        ...base,
        id: "op-0007",
        kind: "add-group",
        group: "g4",
        goal: "",
        state: "succeeded",
        summary: "Add group g4",
        createdAt: iso(Date.now() - 5400e3),
        startedAt: iso(Date.now() - 5400e3),
        finishedAt: iso(Date.now() - 5396e3),
        log: [
          { at: iso(Date.now() - 5398e3), text: "10.0.0.18:6379 replicates 10.0.0.17:6379" },
          { at: iso(Date.now() - 5396e3), text: "group g4 added" },
        ],
      },
      {
        ...base,
        id: "op-0006",
        kind: "migrate",
        goal: "move",
        state: "cancelled",
        summary: "Move 512 slots to g3",
        createdBy: "anna",
        createdAt: iso(Date.now() - 86_400e3),
        startedAt: iso(Date.now() - 86_400e3),
        finishedAt: iso(Date.now() - 86_100e3),
        moves: [],
        progress: {
          fraction: 0.5,
          slotsDone: 256,
          slotsTotal: 512,
          keysDone: 118_000,
          keysTotal: 236_000,
          bytesDone: 61 * MiB,
          bytesTotal: 122 * MiB,
          keysPerSecond: 0,
          bytesPerSecond: 0,
          etaSeconds: null,
        },
      },
      {
        ...base,
        id: "op-0005",
        kind: "migrate",
        goal: "slots",
        state: "failed",
        summary: "Rebalance 3 groups: 1200 slots",
        reason: "node 10.0.0.13:6379: connection refused (12 attempts over 5 min)",
        createdAt: iso(Date.now() - 2 * 86_400e3),
        startedAt: iso(Date.now() - 2 * 86_400e3),
        finishedAt: iso(Date.now() - 2 * 86_400e3 + 400e3),
        moves: [],
      },
    );
  }

  counts() {
    const counts = new Map([...this.groups.keys()].map((id) => [id, 0]));
    for (const id of this.owner) if (id) counts.set(id, (counts.get(id) ?? 0) + 1);
    return counts;
  }

  ops() {
    return 212_000 + Math.sin(this.wave / 9) * 22_000 + Math.sin(this.wave / 2.3) * 6000;
  }

  slotItems() {
    const items = [];
    const key = (s) =>
      `${this.owner[s]}|${this.held.has(s) ? "held" : this.moving.has(s) ? "moving" : this.owner[s] ? "online" : "unassigned"}|${this.moving.get(s) ?? ""}`;
    for (let i = 0; i < this.slotCount; ) {
      let j = i;
      const k = key(i);
      while (j + 1 < this.slotCount && key(j + 1) === k) j++;
      const [group, state, to] = k.split("|");
      items.push({ slots: i === j ? `${i}` : `${i}-${j}`, group, state, ...(to ? { to } : {}) });
      i = j + 1;
    }
    return { epoch: this.epoch, slotCount: this.slotCount, items };
  }

  groupItems() {
    const counts = this.counts();
    return [...this.groups.values()].map((g, i) => {
      const share = counts.get(g.id) / this.slotCount;
      const mem = Math.round(share * 58 * GiB + 3 * MiB);
      const lag = this.trouble && g.id === "g2";
      const nodes = g.nodes.map((n) => ({
        ...n,
        observedRole: n.role,
        reachable: !(lag && n.role === "replica" && i > 9),
        error: "",
        linkUp: n.role === "replica" ? !lag : undefined,
        lagBytes: n.role === "replica" ? (lag ? 48_234_496 : Math.round(Math.random() * 900)) : 0,
        version: "7.0.15",
        memoryBytes: mem,
        maxMemoryBytes: 24 * GiB,
        keys: Math.round(share * 84e6),
        opsPerSecond: Math.round(share * this.ops() * (n.role === "master" ? 1 : 0.02)),
        clients: n.role === "master" ? 34 : 2,
        seenAt: iso(),
      }));
      const slots = [];
      for (let s = 0; s < this.slotCount; s++) if (this.owner[s] === g.id) slots.push(s);
      return {
        id: g.id,
        slotCount: counts.get(g.id),
        slots: format(slots),
        state: lag ? "attention" : "ok",
        keys: Math.round(share * 84e6),
        memoryBytes: mem,
        maxMemoryBytes: 24 * GiB,
        opsPerSecond: Math.round(share * this.ops()),
        problem: lag ? "replica 10.0.0.14:6379 is 46 MiB behind and its link is down" : "",
        nodes,
      };
    });
  }

  proxyItems() {
    return [1, 2, 3].map((n) => {
      const down = this.trouble && n === 3;
      return {
        id: `proxy-${n}`,
        addr: `10.0.1.${n}:6379`,
        admin: `10.0.1.${n}:9120`,
        state: down ? "down" : "serving",
        incarnation: `a${n}`,
        version: "0.1.0",
        startedAt: iso(this.started),
        appliedEpoch: down ? this.epoch - 22 : this.epoch,
        epochLag: down ? 22 : 0,
        opsPerSecond: down ? 0 : Math.round(this.ops() / (this.trouble ? 2 : 3) + n * 900),
        clients: down ? 0 : 412 + n * 7,
        p50Ms: 0.21 + n * 0.02,
        p99Ms: 1.5 + Math.abs(Math.sin(this.wave / 5 + n)) * 0.6,
        memoryBytes: 182 * MiB,
        cpuPercent: down ? 0 : 61 + n * 3,
        errorsPerSecond: 0,
        pid: 4000 + n,
      };
    });
  }

  status() {
    const served = this.owner.filter(Boolean).length;
    const running = this.operations.filter((o) =>
      ["running", "paused", "cancelling", "queued"].includes(o.state),
    );
    const attention = [];
    if (this.trouble) {
      attention.push({
        severity: "critical",
        title: "proxy-3 is down",
        detail:
          "Its lease ended; it was evicted and can write nothing. Clients on 10.0.1.3:6379 are disconnected.",
        since: iso(Date.now() - 94e3),
        link: "/proxies/proxy-3",
      });
      attention.push({
        severity: "warn",
        title: "Group g2: replica 10.0.0.14:6379 is behind",
        detail: "46 MiB behind, link down. A failover of g2 would lose these writes.",
        since: iso(Date.now() - 410e3),
        link: "/groups/g2",
      });
    }
    const groups = this.groupItems();
    const proxies = this.proxyItems();
    const first =
      this.groups.size === 0
        ? "No groups yet."
        : served === this.slotCount
          ? `All ${this.slotCount} slots served.`
          : `${served} of ${this.slotCount} slots served.`;
    return {
      summary: `${first} ${proxies.length} proxies, ${groups.length} groups. ${running.length ? `${running.length} operation running${running[0].progress?.etaSeconds ? `, about ${Math.ceil(running[0].progress.etaSeconds / 60)} min left` : ""}.` : "Nothing is moving."}`,
      health: attention.length ? "critical" : "ok",
      leader: "coordinator-1",
      slots: { total: this.slotCount, served, held: this.held.size },
      opsPerSecond: served ? this.ops() : 0,
      keys: groups.reduce((n, g) => n + g.keys, 0),
      memoryBytes: groups.reduce((n, g) => n + g.memoryBytes, 0),
      clients: proxies.reduce((n, p) => n + p.clients, 0),
      attention,
      running: running.map(({ moves, log, ...rest }) => rest),
    };
  }

  cluster() {
    return {
      id: "c-7f3a91",
      name: "orders",
      scheme: this.slotCount === 1024 ? "crc32/1024" : "crc16/16384",
      slotCount: this.slotCount,
      databases: 16,
      epoch: this.epoch,
      revision: this.revision,
      version: "0.1.0",
    };
  }

  snapshot() {
    return {
      revision: this.revision,
      cluster: this.cluster(),
      status: this.status(),
      slots: this.slotItems(),
      groups: { items: this.groupItems() },
      proxies: { items: this.proxyItems() },
      operations: { items: this.operations.map(({ moves, log, ...rest }) => rest) },
    };
  }

  plan({ goal, groups, slots, toGroup }) {
    const before = this.counts();
    const want = new Map(before);
    const take = []; // [slot, to]
    if (goal === "move") for (const s of parse(slots)) if (this.owner[s] !== toGroup) take.push([s, toGroup]);
    if (goal === "slots" || goal === "drain" || goal === "assign") {
      const ids =
        goal === "drain" ? [...before.keys()].filter((id) => !groups.includes(id)) : [...before.keys()];
      for (const [i, id] of ids.entries()) {
        want.set(id, Math.floor(this.slotCount / ids.length) + (i < this.slotCount % ids.length ? 1 : 0));
      }
      if (goal === "drain") for (const id of groups) want.set(id, 0);
      const now = new Map(before);
      const needy = () => ids.find((id) => now.get(id) < want.get(id));
      for (let s = this.slotCount - 1; s >= 0; s--) {
        const from = this.owner[s];
        if (from && now.get(from) <= want.get(from)) continue;
        const to = needy();
        if (!to) break;
        if (from) now.set(from, now.get(from) - 1);
        now.set(to, now.get(to) + 1);
        take.push([s, to]);
      }
    }
    const by = new Map();
    for (const [s, to] of take.sort((a, b) => a[0] - b[0])) {
      const k = `${this.owner[s]}>${to}`;
      if (!by.has(k)) by.set(k, []);
      by.get(k).push(s);
    }
    const moves = [];
    for (const [k, list] of by) {
      const [from, to] = k.split(">");
      for (let i = 0; i < list.length; i += 256)
        moves.push({
          slots: format(list.slice(i, i + 256)),
          from,
          to,
          slotCount: Math.min(256, list.length - i),
        });
    }
    const after = new Map(before);
    for (const [s, to] of take) {
      if (this.owner[s]) after.set(this.owner[s], after.get(this.owner[s]) - 1);
      after.set(to, after.get(to) + 1);
    }
    const shares = (m) =>
      [...m].map(([group, n]) => ({
        group,
        slots: n,
        keys: Math.round((n / this.slotCount) * 84e6),
        bytes: Math.round((n / this.slotCount) * 58 * GiB),
      }));
    const n = take.length;
    const id = `plan-${1000 + this.plans.size}`;
    const plan = {
      id,
      goal,
      baseEpoch: this.epoch,
      moves,
      before: shares(before),
      after: shares(after),
      estimate: {
        slots: n,
        keys: Math.round((n / this.slotCount) * 84e6),
        bytes: Math.round((n / this.slotCount) * 58 * GiB),
        seconds: Math.round(((n / this.slotCount) * 58 * 1024) / 40),
      },
      checks: [
        { name: "Nodes reachable", result: "pass", detail: "all 8 nodes answered" },
        { name: "Memory after the move", result: "pass", detail: "fullest group g1: 60 % of 24 GiB" },
        {
          name: "Replicas in sync",
          result: this.trouble ? "warn" : "pass",
          detail: this.trouble ? "10.0.0.14:6379 (g2) is 46 MiB behind" : "largest lag 812 B",
        },
        { name: "No other operation on these slots", result: "pass", detail: "none running" },
        { name: "Versions", result: "pass", detail: "all nodes run 7.0.15" },
      ],
      createdAt: iso(),
      expiresAt: iso(Date.now() + 3600e3),
      summary: n ? `Moves ${n} of ${this.slotCount} slots.` : "Nothing to move: slots are balanced.",
    };
    this.plans.set(id, plan);
    return plan;
  }

  start(plan, limits = {}) {
    const total = plan.estimate;
    const op = {
      id: `op-${String(this.operations.length + 5).padStart(4, "0")}`,
      kind: "migrate",
      goal: plan.goal,
      state: "running",
      plan: plan.id,
      summary:
        plan.goal === "drain"
          ? "Drain a group"
          : plan.goal === "assign"
            ? `Assign ${total.slots} slots`
            : `Rebalance ${this.groups.size} groups: ${total.slots} slots`,
      reason: "",
      moves: plan.moves.map((m) => ({
        ...m,
        state: "pending",
        keysDone: 0,
        keysTotal: Math.round((m.slotCount / this.slotCount) * 84e6),
        bytesDone: 0,
        holdMs: 0,
        attempts: 0,
        reason: "",
      })),
      progress: {
        fraction: 0,
        slotsDone: 0,
        slotsTotal: total.slots,
        keysDone: 0,
        keysTotal: total.keys,
        bytesDone: 0,
        bytesTotal: total.bytes,
        keysPerSecond: 0,
        bytesPerSecond: 0,
        etaSeconds: null,
      },
      limits,
      log: [{ at: iso(), text: `started from ${plan.id}, base epoch ${plan.baseEpoch}` }],
      createdBy: "admin",
      createdAt: iso(),
      startedAt: iso(),
      updatedAt: iso(),
      finishedAt: "0001-01-01T00:00:00Z",
      actions: ["pause", "cancel"],
    };
    this.operations.unshift(op);
    return op;
  }

  groupOperation(kind, group, summary, done) {
    const op = {
      id: `op-${String(this.operations.length + 5).padStart(4, "0")}`,
      kind,
      goal: "",
      group,
      state: "running",
      summary,
      reason: "",
      moves: [],
      progress: {
        fraction: 0,
        slotsDone: 0,
        slotsTotal: 0,
        keysDone: 0,
        keysTotal: 0,
        bytesDone: 0,
        bytesTotal: 0,
        keysPerSecond: 0,
        bytesPerSecond: 0,
        etaSeconds: null,
      },
      limits: {},
      log: [{ at: iso(), text: "started" }],
      createdBy: "admin",
      createdAt: iso(),
      startedAt: iso(),
      actions: [],
    };
    this.operations.unshift(op);
    setTimeout(() => {
      done();
      Object.assign(op, { state: "succeeded", finishedAt: iso(), updatedAt: iso() });
      op.progress.fraction = 1;
      op.log.push({ at: iso(), text: "done" });
      this.changed = true;
    }, 1500);
    return op;
  }

  act(op, verb) {
    const next = {
      pause: ["paused", ["resume", "cancel"]],
      resume: ["running", ["pause", "cancel"]],
      cancel: ["cancelling", []],
    }[verb];
    [op.state, op.actions] = next;
    op.reason = verb === "pause" ? "paused by admin" : "";
    op.log.push({ at: iso(), text: `${verb} asked for by admin` });
    if (verb === "cancel") setTimeout(() => this.finish(op, "cancelled"), 1500);
  }

  finish(op, state) {
    for (const m of op.moves) {
      if (m.state !== "done") {
        m.state = "cancelled";
        for (const s of parse(m.slots)) {
          this.moving.delete(s);
          this.held.delete(s);
        }
      }
    }
    Object.assign(op, { state, actions: [], finishedAt: iso(), updatedAt: iso() });
    op.progress.etaSeconds = state === "succeeded" ? 0 : null;
    op.progress.bytesPerSecond = 0;
    op.log.push({ at: iso(), text: state });
    this.changed = true;
  }

  /** One step of the imitation; returns the operations that changed. */
  tick(seconds, speed = 1) {
    this.wave += seconds;
    this.revision++;
    const changed = [];
    for (const op of this.operations) {
      if (op.state !== "running" || !op.moves?.length) continue;
      changed.push(op);
      let budget = seconds * 220 * MiB * speed;
      const bytesOf = (m) => (m.slotCount / op.progress.slotsTotal) * op.progress.bytesTotal;
      for (const m of op.moves) {
        if (m.state === "done" || budget <= 0) continue;
        if (m.state === "pending") {
          m.state = "copying";
          m.attempts = 1;
          for (const s of parse(m.slots)) this.moving.set(s, m.to);
          this.slotsChanged = true;
        }
        const left = bytesOf(m) - m.bytesDone;
        const step = Math.min(left, budget);
        m.bytesDone += step;
        budget -= step;
        m.keysDone = Math.round((m.bytesDone / bytesOf(m)) * m.keysTotal);
        const part = m.bytesDone / bytesOf(m);
        m.state = part >= 1 ? "done" : part > 0.92 ? "handing-over" : part > 0.8 ? "catching-up" : "copying";
        if (m.state === "handing-over") for (const s of parse(m.slots)) this.held.add(s);
        if (m.state === "done") {
          m.holdMs = 9 + Math.random() * 14;
          this.epoch += 2;
          for (const s of parse(m.slots)) {
            this.owner[s] = m.to;
            this.moving.delete(s);
            this.held.delete(s);
          }
          op.log.push({
            at: iso(),
            text: `slots ${m.slots} now served by ${m.to}, held ${m.holdMs.toFixed(1)} ms`,
          });
          this.slotsChanged = true;
        }
      }
      const sum = (f) => op.moves.reduce((n, m) => n + f(m), 0);
      const p = op.progress;
      p.bytesDone = Math.round(sum((m) => m.bytesDone));
      p.keysDone = sum((m) => m.keysDone);
      p.slotsDone = sum((m) => (m.state === "done" ? m.slotCount : 0));
      p.fraction = p.bytesTotal ? p.bytesDone / p.bytesTotal : 1;
      p.bytesPerSecond = 220 * MiB * speed * (0.95 + Math.random() * 0.1);
      p.keysPerSecond = p.bytesPerSecond / 700;
      p.etaSeconds = (p.bytesTotal - p.bytesDone) / p.bytesPerSecond;
      op.updatedAt = iso();
      if (op.moves.every((m) => m.state === "done")) this.finish(op, "succeeded");
    }
    return changed;
  }
}
