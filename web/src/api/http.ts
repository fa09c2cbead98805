// Speaks HTTP with the gateway. The only module that calls `fetch`.
import { login } from "./auth";
import type { Operations } from "./schema";

const TIMEOUT_MS = 30_000;

/** An answer that refuses, in the gateway's own words. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | null,
    readonly param: string | null,
    readonly retryAfterS: number | null,
  ) {
    super(message);
  }
}

/** No answer came: the network, or a gateway that is away. */
export class Unreachable extends Error {}

type Op = keyof Operations;
type Fields<T> = [T] extends [never] ? { body?: never } : { body: T };
type Needed<T> = Record<never, never> extends T ? { query?: T } : { query: T };
type Placed<T> = keyof T extends never ? { path?: never } : { path: T };
export type Call<K extends Op> = Fields<Operations[K]["body"]> &
  Needed<Operations[K]["query"]> &
  Placed<Operations[K]["path"]> & { form?: FormData; headers?: Record<string, string>; signal?: AbortSignal; patienceMs?: number };

/** Calls an operation that /openapi.json describes. Raises ApiError or Unreachable. */
export async function call<K extends Op>(op: K, how: Call<K>): Promise<Operations[K]["answer"]> {
  const [method, template] = op.split(" ") as [string, string];
  const path = template.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String((how.path as Record<string, unknown> | undefined)?.[name])),
  );
  return (await send(method, path + queryOf(how.query), how)) as Operations[K]["answer"];
}

function queryOf(query: unknown): string {
  const pairs = Object.entries((query ?? {}) as Record<string, unknown>).filter(([, value]) => value != null);
  return pairs.length > 0 ? `?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}` : "";
}

interface Sent {
  body?: unknown;
  form?: FormData | undefined;
  headers?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
  patienceMs?: number | undefined;
}

async function send(method: string, path: string, how: Sent): Promise<unknown> {
  const deadline = AbortSignal.timeout(how.patienceMs ?? TIMEOUT_MS);
  const signal = how.signal ? AbortSignal.any([how.signal, deadline]) : deadline;
  const headers: Record<string, string> = { ...how.headers };
  let body: FormData | string | null = how.form ?? null; // a form brings its own type and boundary
  if (body === null && how.body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(how.body);
  }
  const answer = await open(path, { method, headers, body, signal });
  if (answer.status === 204) return null;
  return await answer.json();
}

/** The open answer of any request with the session's cookie; the caller reads it and ends it by its signal. */
export async function open(path: string, init: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, { ...init, credentials: "same-origin", redirect: "error" });
  } catch (err) {
    if (init.signal?.aborted && (init.signal.reason as Error | undefined)?.name === "AbortError") throw err;
    throw new Unreachable();
  }
  if (answer.ok) return answer;
  const refusal = await refusalOf(answer);
  if (refusal.status === 401 && login.peek().state === "in") login.value = { state: "out", why: "expired" };
  throw refusal;
}

async function refusalOf(answer: Response): Promise<ApiError> {
  const after = Number(answer.headers.get("Retry-After"));
  const retryAfterS = Number.isFinite(after) && after > 0 ? after : null;
  try {
    const { error } = (await answer.json()) as { error: { message: string; code: string | null; param: string | null } };
    return new ApiError(answer.status, error.message, error.code, error.param, retryAfterS);
  } catch {
    return new ApiError(answer.status, answer.statusText || `HTTP ${answer.status}`, null, null, retryAfterS);
  }
}
