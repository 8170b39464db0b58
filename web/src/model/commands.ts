// The same action from a terminal: the shardis command and the request behind
// it. Dialogs show both, so that a person who clicks learns the words for a
// run book.

export type Equivalent = { cli: string; curl: string };

const quote = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

export function curl(method: string, path: string, body?: unknown, origin = location.origin): string {
  const parts = [`curl -X ${method}`, `-H "Authorization: Bearer $SHARDIS_TOKEN"`];
  if (body !== undefined) {
    parts.push(`-H 'Content-Type: application/json'`, `-d ${quote(JSON.stringify(body))}`);
  }
  parts.push(quote(`${origin}/api/v1${path}`));
  return parts.join(" \\\n  ");
}

const make = (cli: string, method: string, path: string, body?: unknown): Equivalent => ({
  cli,
  curl: curl(method, path, body),
});

export const equivalents = {
  runPlan: (plan: string, bytesPerSecond?: number) =>
    make(`shardis rebalance run ${plan}`, "POST", "/operations", {
      plan,
      ...(bytesPerSecond ? { limits: { bytesPerSecond } } : {}),
    }),
  act: (action: "pause" | "resume" | "cancel", id: string) =>
    make(`shardis ops ${action} ${id}`, "POST", `/operations/${id}/actions/${action}`),
  createGroup: (id: string, nodes: string[]) =>
    make(
      `shardis groups add ${quote(id)} ${nodes.map((n) => `--node ${quote(n)}`).join(" ")} --password-file FILE`,
      "POST",
      "/groups",
      { id, nodes: nodes.map((addr) => ({ addr })), password: "…" },
    ),
  removeGroup: (id: string) =>
    make(`shardis groups remove ${quote(id)}`, "DELETE", `/groups/${encodeURIComponent(id)}`),
  addNode: (group: string, addr: string) =>
    make(
      `shardis nodes add ${quote(group)} ${quote(addr)}`,
      "POST",
      `/groups/${encodeURIComponent(group)}/nodes`,
      { addr },
    ),
  removeNode: (group: string, addr: string) =>
    make(
      `shardis nodes remove ${quote(group)} ${quote(addr)}`,
      "DELETE",
      `/groups/${encodeURIComponent(group)}/nodes/${encodeURIComponent(addr)}`,
    ),
};
