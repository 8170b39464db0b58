// The hooks through which pages read and act. Reading: one cached snapshot,
// kept current by the stream; each hook selects a part, and a part that did
// not change does not redraw. Acting: plain requests; what they bring about
// comes back by the stream.

import { QueryClient, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { get, Problem, patch, post, remove } from "./client";
import { recordSample } from "./history";
import { markFresh, setLive } from "./live";
import { applyEvent, mergeOperation, readSnapshot, type StreamEvent } from "./reducer";
import { Stream } from "./stream";
import type {
  AuthState,
  NewGroup,
  Operation,
  OperationAction,
  Plan,
  PlanRequest,
  Probe,
  ProxyDetail,
  SlotLookup,
  Snapshot,
  User,
} from "./types";

export const keys = {
  auth: ["auth"] as const,
  snapshot: ["snapshot"] as const,
  operation: (id: string) => ["operation", id] as const,
  plan: (id: string) => ["plan", id] as const,
  proxy: (id: string) => ["proxy", id] as const,
};

export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: Number.POSITIVE_INFINITY,
        refetchOnWindowFocus: false,
        retry: (failures, error) =>
          failures < 2 && !(error instanceof Problem && error.status >= 400 && error.status < 500),
      },
    },
  });
}

export const useAuth = () =>
  useQuery({ queryKey: keys.auth, queryFn: () => get<AuthState>("/auth/state"), retry: 3 });

const fetchSnapshot = async (): Promise<Snapshot> => {
  const snapshot = readSnapshot(await get<unknown>("/snapshot"));
  markFresh();
  recordSample(snapshot.status, snapshot.proxies);
  return snapshot;
};

export function useSnapshot<T>(select: (snapshot: Snapshot) => T) {
  return useQuery({ queryKey: keys.snapshot, queryFn: fetchSnapshot, select });
}

/** Puts an event of the stream into the cache. */
export function receive(client: QueryClient, event: StreamEvent): void {
  const next = applyEvent(client.getQueryData<Snapshot>(keys.snapshot), event);
  if (!next) return;
  client.setQueryData(keys.snapshot, next);
  if (event.type === "status" || event.type === "snapshot") recordSample(next.status, next.proxies);
  if (event.type === "operations" || event.type === "snapshot") {
    for (const operation of next.operations) {
      const old = client.getQueryData<Operation>(keys.operation(operation.id));
      if (old) client.setQueryData(keys.operation(operation.id), mergeOperation(old, operation));
    }
  }
}

/** Runs the stream for as long as the page is signed in. */
export function useStream(): void {
  const client = useQueryClient();
  useEffect(() => {
    const stream = new Stream({
      open: (url) => new EventSource(url, { withCredentials: true }),
      poll: () => get<unknown>("/snapshot"),
      onEvent: (event) => receive(client, event),
      onState: setLive,
      stillSignedIn: async () => {
        const state = await get<AuthState>("/auth/state");
        if (!state.user) client.setQueryData(keys.auth, state);
        return state.user !== null;
      },
    });
    stream.start();
    return () => stream.stop();
  }, [client]);
}

/** One operation with its moves and log; kept current by the stream. */
export const useOperation = (id: string) =>
  useQuery({
    queryKey: keys.operation(id),
    queryFn: () => get<Operation>(`/operations/${encodeURIComponent(id)}`),
  });

export const usePlan = (id: string) =>
  useQuery({ queryKey: keys.plan(id), queryFn: () => get<Plan>(`/plans/${encodeURIComponent(id)}`) });

export const useProxy = (id: string) =>
  useQuery({
    queryKey: keys.proxy(id),
    queryFn: () => get<ProxyDetail>(`/proxies/${encodeURIComponent(id)}`),
    refetchInterval: 5000,
  });

export const lookUpKey = (key: string) => get<SlotLookup>(`/slots/lookup?key=${encodeURIComponent(key)}`);

export function useCreatePlan() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: PlanRequest) => post<Plan>("/plans", body),
    onSuccess: (plan) => client.setQueryData(keys.plan(plan.id), plan),
  });
}

/** Operations that were just asked for are shown before the stream tells. */
function useOperationMutation<A>(act: (argument: A) => Promise<Operation>) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: act,
    onSuccess: (operation) => {
      receive(client, { type: "operations", data: operation });
      client.setQueryData<Operation>(keys.operation(operation.id), (old) => mergeOperation(old, operation));
    },
  });
}

export const useStartOperation = () =>
  useOperationMutation((body: { plan: string; limits?: { bytesPerSecond: number } }) =>
    post<Operation>("/operations", body),
  );

export const useOperationAction = () =>
  useOperationMutation(({ id, action }: { id: string; action: OperationAction }) =>
    post<Operation>(`/operations/${encodeURIComponent(id)}/actions/${action}`),
  );

export const useOperationLimits = () =>
  useOperationMutation(({ id, bytesPerSecond }: { id: string; bytesPerSecond: number }) =>
    patch<Operation>(`/operations/${encodeURIComponent(id)}`, { limits: { bytesPerSecond } }),
  );

export const useCreateGroup = () =>
  useOperationMutation((group: NewGroup) => post<Operation>("/groups", group));

export const useRemoveGroup = () =>
  useOperationMutation((id: string) => remove<Operation>(`/groups/${encodeURIComponent(id)}`));

export const useAddNode = () =>
  useOperationMutation(({ group, addr, zone }: { group: string; addr: string; zone?: string }) =>
    post<Operation>(`/groups/${encodeURIComponent(group)}/nodes`, { addr, ...(zone ? { zone } : {}) }),
  );

export const useRemoveNode = () =>
  useOperationMutation(({ group, addr }: { group: string; addr: string }) =>
    remove<Operation>(`/groups/${encodeURIComponent(group)}/nodes/${encodeURIComponent(addr)}`),
  );

export const useProbe = () =>
  useMutation({
    mutationFn: async (body: { nodes: { addr: string }[]; user?: string; password: string }) =>
      (await post<{ items: Probe[] }>("/node-probes", body)).items,
  });

function useSignInMutation<A>(path: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: A) => post<User>(path, body),
    onSuccess: () => client.refetchQueries({ queryKey: keys.auth }),
  });
}

export const useLogin = () =>
  useSignInMutation<{ name: string; password: string } | { token: string }>("/auth/login");
export const useSetup = () =>
  useSignInMutation<{ setupToken: string; name: string; password: string }>("/auth/setup");

export function useLogout() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => post<void>("/auth/logout"),
    onSettled: async () => {
      client.removeQueries({ predicate: (query) => query.queryKey[0] !== "auth" });
      await client.refetchQueries({ queryKey: keys.auth });
    },
  });
}
