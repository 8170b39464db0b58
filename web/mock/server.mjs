// A stand-in for the dashboard while working on the page:
//
//   npm run mock                     API (and web/dist, if built) on 127.0.0.1:8099
//   npm run mock -- --empty          a new cluster
//   npm run mock -- --trouble        something to worry about
//   npm run mock -- --small          1024 slots
//   npm run mock -- --setup          nobody has signed up yet
//
// Any name and password sign in; the name "viewer" gets the viewer role.

import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { Cluster } from "./cluster.mjs";

const flags = new Set(process.argv.slice(2));
const port = Number(process.env.PORT ?? 8099);
const cluster = new Cluster({
  slotCount: flags.has("--small") ? 1024 : 16384,
  empty: flags.has("--empty"),
  trouble: flags.has("--trouble"),
});
const speed = Number(process.env.SPEED ?? 1);
const dist = new URL("../dist", import.meta.url).pathname;
const sessions = new Map();
let setupNeeded = flags.has("--setup");
const streams = new Set();

const problem = (status, code, title, detail, extra = {}) => ({
  status,
  body: {
    type: `/problems/${code}`,
    code,
    title,
    status,
    detail,
    instance: `req-${randomBytes(4).toString("hex")}`,
    ...extra,
  },
});

function send(res, status, body, headers = {}) {
  res.writeHead(status, {
    "Content-Type": status >= 400 ? "application/problem+json" : "application/json",
    "Cache-Control": "no-store",
    ...headers,
  });
  res.end(body === undefined ? undefined : JSON.stringify(body));
}

const types = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
  ".woff2": "font/woff2",
  ".woff": "font/woff",
};
function page(path, res) {
  let file = join(dist, path);
  if (!existsSync(file) || statSync(file).isDirectory()) file = join(dist, "index.html");
  const type = types[extname(file)] ?? "application/octet-stream";
  if (!file.endsWith("index.html")) {
    res.writeHead(200, { "Content-Type": type, "Cache-Control": "public, max-age=31536000, immutable" });
    return res.end(readFileSync(file));
  }
  const nonce = randomBytes(16).toString("base64");
  res.writeHead(200, {
    "Content-Type": type,
    "Cache-Control": "no-store",
    "Content-Security-Policy": `default-src 'self'; script-src 'self'; style-src 'self' 'nonce-${nonce}'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'`,
  });
  res.end(readFileSync(file, "utf8").replaceAll("__CSP_NONCE__", nonce));
}

function emit(event, data) {
  for (const res of streams)
    res.write(`id: ${cluster.revision}\nevent: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
}

setInterval(() => {
  const changed = cluster.tick(0.5, speed);
  for (const op of changed) emit("operations", op);
  if (cluster.slotsChanged || cluster.changed || changed.length) emit("slots", cluster.slotItems());
  if (cluster.changed) for (const op of cluster.operations.slice(0, 2)) emit("operations", op);
  cluster.slotsChanged = cluster.changed = false;
  emit("status", cluster.status());
  emit("groups", { items: cluster.groupItems() });
  emit("proxies", { items: cluster.proxyItems() });
}, 500);

function probe(addr) {
  const bad = addr.includes("bad");
  return {
    addr,
    ok: !bad,
    checks: bad
      ? [{ name: "Reachable", result: "fail", detail: "connection refused" }]
      : [
          { name: "Reachable", result: "pass", detail: "answered in 0.4 ms" },
          { name: "Password", result: "pass", detail: "accepted" },
          {
            name: "Version",
            result: addr.endsWith("1") ? "warn" : "pass",
            detail: addr.endsWith("1") ? "7.2.4, others run 7.0.15" : "7.0.15",
          },
          { name: "Empty", result: "pass", detail: "0 keys" },
          { name: "Cluster mode", result: "pass", detail: "off" },
        ],
  };
}

function api(method, path, query, body, user) {
  const [, a, b, c, d, e] = path.split("/").map(decodeURIComponent);
  const ok = (value, status = 200) => ({ status, body: value });
  const missing = problem(404, "not-found", "Not found", `There is no ${path}.`);
  const cl = cluster;
  if (a === "snapshot") return ok(cl.snapshot());
  if (a === "status") return ok(cl.status());
  if (a === "cluster") return ok(cl.cluster());
  if (a === "slots" && b === "lookup") {
    const key = query.get("key");
    const tag = /\{([^}]+)\}/.exec(key)?.[1] ?? key;
    let h = 0;
    for (const ch of tag) h = (h * 33 + ch.charCodeAt(0)) % cl.slotCount;
    const group = cl.owner[h];
    return ok({ key, tag, slot: h, group, master: cl.groups.get(group)?.nodes[0].addr ?? "" });
  }
  if (a === "slots") return ok(cl.slotItems());
  if (a === "groups" && !b && method === "POST") {
    if (cl.groups.has(body.id))
      return problem(409, "already-exists", "This group exists", `Group ${body.id} exists.`, {
        errors: [{ pointer: "/id", detail: "is taken" }],
      });
    return ok(
      cl.groupOperation("add-group", body.id, `Add group ${body.id}`, () =>
        cl.addGroup(
          body.id,
          body.nodes.map((n) => n.addr),
        ),
      ),
      202,
    );
  }
  if (a === "groups" && b && c === "nodes") {
    const g = cl.groups.get(b);
    if (method === "POST")
      return ok(
        cl.groupOperation("add-node", b, `Add node ${body.addr} to ${b}`, () =>
          g.nodes.push({ addr: body.addr, role: "replica" }),
        ),
        202,
      );
    return ok(
      cl.groupOperation("remove-node", b, `Remove node ${d} from ${b}`, () => {
        g.nodes = g.nodes.filter((n) => n.addr !== d);
      }),
      202,
    );
  }
  if (a === "groups" && b && method === "DELETE") {
    if (cl.counts().get(b))
      return problem(
        409,
        "group-has-slots",
        "The group owns slots",
        `Group ${b} owns ${cl.counts().get(b)} slots.`,
        { hint: "Drain it first." },
      );
    return ok(
      cl.groupOperation("remove-group", b, `Remove group ${b}`, () => cl.groups.delete(b)),
      202,
    );
  }
  if (a === "groups") return ok({ items: cl.groupItems() });
  if (a === "proxies" && b) {
    const p = cl.proxyItems().find((x) => x.id === b);
    if (!p) return missing;
    return ok({
      ...p,
      table: {
        epoch: p.appliedEpoch,
        items: cl
          .slotItems()
          .items.map(({ slots, group }) => ({ slots, group, node: cl.groups.get(group)?.nodes[0].addr })),
      },
      commands: [
        ["get", 9.1e7],
        ["set", 3.2e7],
        ["mget", 4.4e6],
        ["incr", 9.2e5],
        ["hgetall", 8.1e5],
        ["expire", 2e5],
      ].map(([name, calls]) => ({ name, calls, errors: name === "incr" ? 14 : 0 })),
      backends: [...cl.groups.values()].flatMap((g) =>
        g.nodes
          .filter((n) => n.role === "master")
          .map((n) => ({
            group: g.id,
            node: n.addr,
            state: "connected",
            connections: 4,
            inflight: Math.round(Math.random() * 90),
            requests: 41_000_000,
          })),
      ),
    });
  }
  if (a === "proxies") return ok({ items: cl.proxyItems() });
  if (a === "node-probes") return ok({ items: body.nodes.map((n) => probe(n.addr)) });
  if (a === "plans" && method === "POST") return ok(cl.plan(body), 201);
  if (a === "plans") return cl.plans.has(b) ? ok(cl.plans.get(b)) : missing;
  if (a === "operations" && !b && method === "POST") {
    const plan = cl.plans.get(body.plan);
    if (!plan) return missing;
    if (plan.baseEpoch !== cl.epoch)
      return problem(
        409,
        "plan-stale",
        "The plan is out of date",
        `The topology is at epoch ${cl.epoch}, the plan was made at ${plan.baseEpoch}: slots 0-255 moved since.`,
        { hint: "Compute a new plan." },
      );
    return ok(cl.start(plan, body.limits), 202);
  }
  if (a === "operations" && b) {
    const op = cl.operations.find((o) => o.id === b);
    if (!op) return missing;
    if (c === "actions") {
      if (!op.actions.includes(d))
        return problem(409, "operation-finished", "Not possible now", `Operation ${b} is ${op.state}.`);
      cl.act(op, d);
      cl.changed = true;
      return ok(op, 202);
    }
    if (method === "PATCH") Object.assign(op.limits, body.limits);
    return ok(op);
  }
  if (a === "operations") return ok({ items: cl.operations });
  void e;
  void user;
  return missing;
}

createServer(async (req, res) => {
  const url = new URL(req.url, "http://x");
  if (!url.pathname.startsWith("/api/v1")) return page(url.pathname, res);
  const path = url.pathname.slice("/api/v1".length);
  let text = "";
  for await (const chunk of req) text += chunk;
  const body = text ? JSON.parse(text) : {};
  const session = /mock=([^;]+)/.exec(req.headers.cookie ?? "")?.[1];
  const user = sessions.get(session) ?? (flags.has("--open") ? { name: "admin", role: "admin" } : null);
  if (path === "/auth/state") return send(res, 200, { setupNeeded, user, cluster: { name: "orders" } });
  if (path === "/auth/login" || path === "/auth/setup") {
    if (body.password === "wrong" || body.token === "wrong") {
      const p = problem(401, "login-failed", "Sign-in failed", "Name and password do not match.");
      return send(res, p.status, p.body);
    }
    const id = randomBytes(8).toString("hex");
    const who = { name: body.name || "token", role: body.name === "viewer" ? "viewer" : "admin" };
    sessions.set(id, who);
    setupNeeded = false;
    return send(res, 200, who, { "Set-Cookie": `mock=${id}; Path=/; HttpOnly; SameSite=Lax` });
  }
  if (path === "/auth/logout") {
    sessions.delete(session);
    return send(res, 204);
  }
  if (!user) {
    const p = problem(401, "unauthenticated", "Sign in first", "");
    return send(res, p.status, p.body);
  }
  if (path === "/events") {
    res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    streams.add(res);
    req.on("close", () => streams.delete(res));
    res.write(`event: snapshot\ndata: ${JSON.stringify(cluster.snapshot())}\n\n`);
    return;
  }
  const answer = api(req.method, path, url.searchParams, body, user);
  send(res, answer.status, answer.body);
}).listen(port, "127.0.0.1", () => console.log(`mock dashboard on http://127.0.0.1:${port}`));
