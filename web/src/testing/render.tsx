import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { ReactElement } from "react";
import { vi } from "vitest";
import { Router } from "wouter";
import { memoryLocation } from "wouter/memory-location";
import { keys, makeQueryClient } from "../api/data";
import type { Snapshot, User } from "../api/types";
import { PersonProvider } from "../parts/role";
import { snapshot } from "./fixture";

type Answer = { status?: number; body: unknown };

/** Answers of the API by "METHOD /path"; anything else is a failure. */
export function answer(answers: Record<string, Answer | ((body: unknown) => Answer)>) {
  const calls: { request: string; body: unknown }[] = [];
  vi.stubGlobal("fetch", async (url: string, init: RequestInit) => {
    const request = `${init.method} ${url.replace("/api/v1", "")}`;
    const body = init.body ? JSON.parse(String(init.body)) : undefined;
    calls.push({ request, body });
    const found = answers[request];
    if (!found) throw new Error(`no answer for ${request}`);
    const { status = 200, body: reply } = typeof found === "function" ? found(body) : found;
    return new Response(JSON.stringify(reply), { status });
  });
  return calls;
}

export function show(
  element: ReactElement,
  {
    path = "/",
    data = snapshot(),
    user = { name: "admin", role: "admin" } as User,
  }: { path?: string; data?: Snapshot; user?: User } = {},
) {
  const client = makeQueryClient();
  client.setDefaultOptions({ queries: { ...client.getDefaultOptions().queries, retry: false } });
  client.setQueryData(keys.snapshot, data);
  const [pathname, search] = path.split("?");
  const memory = memoryLocation({ path: pathname, searchPath: search, record: true });
  const view = render(
    <QueryClientProvider client={client}>
      <MantineProvider env="test">
        <PersonProvider value={user}>
          <Router hook={memory.hook} searchHook={memory.searchHook}>
            {element}
          </Router>
        </PersonProvider>
      </MantineProvider>
    </QueryClientProvider>,
  );
  return { ...view, client, history: memory.history };
}
