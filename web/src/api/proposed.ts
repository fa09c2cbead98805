// Answers that the page is ready for and that the gateway does not describe yet: README.md has the proposals in full.
// What lands in /openapi.json is removed here, and its generated type used instead.
import type { ReplicaReport } from "./schema";

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

/** Further fields of a replica in GET /workers. */
export interface ReplicaExtras {
  model?: string;
  gpus?: number[];
  since?: number;
}
