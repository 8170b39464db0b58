// fetch with the manners of the API: JSON both ways, the session cookie, and
// problem documents as errors that carry their fields.

import type { ProblemDocument } from "./types";

export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly hint: string;
  readonly instance: string;
  readonly errors: { pointer?: string; detail: string }[];

  constructor(document: ProblemDocument, status: number) {
    super(document.detail || document.title || `HTTP ${status}`);
    this.status = document.status ?? status;
    this.code = document.code ?? document.type?.split("/").pop() ?? "";
    this.title = document.title ?? "";
    this.detail = document.detail ?? "";
    this.hint = document.hint ?? "";
    this.instance = document.instance ?? "";
    this.errors = document.errors ?? [];
  }
}

export const root = "/api/v1";

type Listener = () => void;
const signedOut = new Set<Listener>();

/** Called whenever any request finds the session gone. */
export function onSignedOut(listener: Listener): () => void {
  signedOut.add(listener);
  return () => signedOut.delete(listener);
}

async function problemOf(response: Response): Promise<Problem> {
  let document: ProblemDocument = {};
  try {
    document = (await response.json()) as ProblemDocument;
  } catch {
    document = { title: response.statusText || `HTTP ${response.status}` };
  }
  const id = response.headers.get("X-Request-Id");
  if (!document.instance && id) document.instance = id;
  return new Problem(document, response.status);
}

export async function request<T>(
  method: "GET" | "POST" | "PATCH" | "DELETE",
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  let response: Response;
  try {
    response = await fetch(root + path, {
      method,
      credentials: "same-origin",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new Problem({ code: "unreachable", title: "The dashboard does not answer." }, 0);
  }
  if (!response.ok) {
    const problem = await problemOf(response);
    if (problem.status === 401 && !path.startsWith("/auth/")) for (const listener of signedOut) listener();
    throw problem;
  }
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body?: unknown) => request<T>("POST", path, body);
export const patch = <T>(path: string, body: unknown) => request<T>("PATCH", path, body);
export const remove = <T>(path: string) => request<T>("DELETE", path);
