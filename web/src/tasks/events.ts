// What the gateway says of tasks over the socket, and the check that a message is such an event.
import type { Stage, State, Video, VideoError, WaitingFor } from "../api/schema";

export type Status = State;

export interface TaskEvent {
  id: string;
  /** The place in the tenant's stream; what a reconnect asks to go on from. */
  cursor: string | null;
  type: string;
  video: string;
  created_at: number;
  status?: Status;
  attempt?: number;
  stage?: Stage;
  step?: number;
  steps?: number;
  progress?: number;
  eta_s?: number | null;
  loaded_bytes?: number;
  load_bytes?: number;
  reason?: string;
  error?: VideoError | null;
  /** Of a new task: what was asked for. */
  snapshot?: Video;
}

/** Why a task waits, and behind how many. It has no place among the events, and is true when it comes. */
export interface WaitNote {
  type: "video.waiting";
  video: string;
  waiting_for: WaitingFor | null;
  queue_position: number | null;
  eta_s: number | null;
}

/** The event or note in a message; "watching" for the word that whatever happens from now on will be told; null for anything
 * else, which a newer gateway may send. */
export function readMessage(text: string): TaskEvent | WaitNote | "watching" | null {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof said !== "object" || said === null) return null;
  const event = said as Record<string, unknown>;
  if (event.object === "video.watching") return "watching";
  if (event.object !== "video.event" || typeof event.video !== "string") return null;
  if (event.type === "video.waiting") return event as unknown as WaitNote;
  if (typeof event.id !== "string") return null;
  if (typeof event.type !== "string" || typeof event.created_at !== "number") return null;
  return { ...(event as unknown as TaskEvent), cursor: typeof event.cursor === "string" ? event.cursor : null };
}

/** Ids are numbers joined by dashes, compared part by part. */
export function compareIds(a: string, b: string): number {
  const left = a.split("-").map(BigInt);
  const right = b.split("-").map(BigInt);
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const x = left[i] ?? -1n;
    const y = right[i] ?? -1n;
    if (x !== y) return x < y ? -1 : 1;
  }
  return 0;
}
