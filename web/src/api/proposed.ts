// Answers that the page is ready for and that the gateway does not describe yet: README.md has the proposals in full.
// What lands in /openapi.json is removed here, and its generated type used instead.
import type { ReplicaReport, Role } from "./schema";

/** GET /v1/session */
export interface Session {
  tenant: string;
  role: Role;
  name: string;
  /** Unix seconds; null for an API key, which does not expire. */
  expires_at: number | null;
}

/** Further fields of a model in GET /v1/models. */
export interface ModelExtras {
  expect?: {
    wake_s: number | null;
    seconds_per_work: number | null;
    waiting: number;
    running: number;
  };
  idle_left_s?: number | null;
  replicas?: { worker: string; phase: ReplicaReport["phase"]; busy: number }[];
}

/** Further fields of a worker in GET /workers. */
export interface WorkerExtras {
  standing?: "alive" | "suspect" | "dead";
  heartbeat_age_s?: number | null;
}

/** Further fields of a replica in GET /workers. */
export interface ReplicaExtras {
  model?: string;
  gpus?: number[];
  since?: number;
}

/** GET /v1/queues */
export interface Queues {
  data: { model: string; tenant: string; waiting: number; running: number; oldest_s: number }[];
}

/** GET /v1/history: `columns[name][i]` belongs to `at[i]`. */
export interface History {
  at: number[];
  columns: Record<HistoryColumn, (number | null)[]>;
}

export type HistoryColumn =
  | "queue_length"
  | "gpus_busy"
  | "gpus_idle"
  | "step_seconds"
  | "first_token_seconds"
  | "wakes";

/** POST /v1/videos/{id}/shares */
export interface Share {
  id: string;
  token: string;
  expires_at: number;
}
