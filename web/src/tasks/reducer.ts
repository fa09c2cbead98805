// The state of all tasks as this page knows it, moved by `reduce` alone. Pure: no clock, no network.
//
// What is known of a task comes as events (live or replayed) and as snapshots (answers of GET, POST and lists), in any
// order, late and repeated. Every one of them has a place in the task's life: (era, stage, step). The era counts claims
// and requeues, and an ended task has the last one. A task only ever moves to a later place, so whatever comes late or
// twice changes nothing, and the outcome does not depend on the order of arrival.
import type { Stage, Video, VideoError, WaitingFor } from "../api/schema";
import { compareIds, type Status, type TaskEvent, type WaitNote } from "./events";

const STAGES: readonly Stage[] = ["loading", "encoding", "denoising", "decoding", "uploading"];
const LAST_ERA = Number.MAX_SAFE_INTEGER;
const MAX_DELETED = 2_000;

export interface Place {
  readonly era: number;
  readonly stage: number;
  readonly step: number;
}

export interface Task {
  readonly id: string;
  /** The newest snapshot; null while only events have told of the task. */
  readonly video: Video | null;
  readonly videoPlace: Place | null;
  readonly place: Place;
  readonly status: Status;
  readonly attempt: number;
  readonly stage: Stage | null;
  readonly step: number;
  readonly steps: number;
  /** In percent, as the gateway says it. */
  readonly progress: number;
  readonly etaS: number | null;
  /** How much of the model's weights is read, from 0 to 1, while it loads. */
  readonly loaded: number | null;
  /** How many tasks come before this one, and which request told so: answers can overtake each other. */
  readonly queuePosition: number | null;
  readonly positionAsked: number;
  /** Which request last changed what its owner says of it. */
  readonly labelsAsked: number;
  /** What of its model it waits for; null for its turn alone, or for nothing. */
  readonly waitingFor: WaitingFor | null;
  readonly error: VideoError | null;
  /** The last preview; both numbers only rise. Step 0: some preview of that attempt. */
  readonly preview: { readonly attempt: number; readonly step: number } | null;
}

export interface Tasks {
  readonly byId: ReadonlyMap<string, Task>;
  readonly cursor: string | null;
  /** Deleted, here or elsewhere: a late event does not bring them back. */
  readonly deleted: ReadonlySet<string>;
}

export type Input =
  | { readonly kind: "event"; readonly event: TaskEvent }
  | { readonly kind: "snapshot"; readonly video: Video; readonly asked: number }
  | { readonly kind: "note"; readonly note: WaitNote; readonly asked: number }
  | { readonly kind: "deleted"; readonly id: string };

export const NO_TASKS: Tasks = { byId: new Map(), cursor: null, deleted: new Set() };

export function ended(status: Status): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** The tasks after these inputs; the very same object when they change nothing. */
export function reduce(tasks: Tasks, inputs: readonly Input[]): Tasks {
  let byId: Map<string, Task> | null = null;
  let deleted: Set<string> | null = null;
  let cursor = tasks.cursor;
  for (const input of inputs) {
    if (input.kind === "event") cursor = later(cursor, input.event.cursor);
    const id = idOf(input);
    if ((deleted ?? tasks.deleted).has(id)) continue;
    if (input.kind === "deleted" || (input.kind === "event" && input.event.type === "video.deleted")) {
      deleted = bounded(deleted ?? new Set(tasks.deleted), id);
      byId ??= new Map(tasks.byId);
      byId.delete(id);
      continue;
    }
    const before = (byId ?? tasks.byId).get(id);
    const after = input.kind === "event" ? onEvent(before, input.event) : input.kind === "note" ? onNote(before, input.note, input.asked) : onSnapshot(before, input.video, input.asked);
    if (after !== before && after !== undefined) {
      byId ??= new Map(tasks.byId);
      byId.set(id, after);
    }
  }
  if (byId === null && deleted === null && cursor === tasks.cursor) return tasks;
  return { byId: byId ?? tasks.byId, deleted: deleted ?? tasks.deleted, cursor };
}

export function idOf(input: Input): string {
  if (input.kind === "event") return input.event.video;
  if (input.kind === "note") return input.note.video;
  return input.kind === "snapshot" ? input.video.id : input.id;
}

function later(a: string | null, b: string | null): string | null {
  if (a === null || b === null) return a ?? b;
  return compareIds(a, b) < 0 ? b : a;
}

function bounded(deleted: Set<string>, id: string): Set<string> {
  deleted.add(id);
  for (const oldest of deleted) {
    if (deleted.size <= MAX_DELETED) break;
    deleted.delete(oldest);
  }
  return deleted;
}

/** An attempt is claimed (2n) and put back (2n+1): queued for the first time is 1, the first attempt 2. While it loads, what
 * is read of the weights counts as steps. */
function placeOf(status: Status, attempt: number, stage: Stage | null, step: number, loaded: number | null): Place {
  if (ended(status)) return { era: LAST_ERA, stage: 0, step: 0 };
  if (status === "queued") return { era: 2 * attempt + 1, stage: 0, step: 0 };
  return { era: 2 * attempt, stage: stage === null ? 0 : Math.max(0, STAGES.indexOf(stage)), step: loaded === null ? step : Math.floor(loaded * 1000) };
}

export function comparePlaces(a: Place, b: Place): number {
  return a.era - b.era || a.stage - b.stage || a.step - b.step;
}

const NOWHERE: Place = { era: 0, stage: 0, step: 0 };

function unknown(id: string): Task {
  return {
    id,
    video: null,
    videoPlace: null,
    place: NOWHERE,
    status: "queued",
    attempt: 0,
    stage: null,
    step: 0,
    steps: 0,
    progress: 0,
    etaS: null,
    loaded: null,
    queuePosition: null,
    positionAsked: -1,
    labelsAsked: -1,
    waitingFor: null,
    error: null,
    preview: null,
  };
}

function onEvent(before: Task | undefined, event: TaskEvent): Task | undefined {
  const task = before ?? unknown(event.video);
  const attempt = event.attempt ?? 0;
  if (event.type === "video.preview") return withPreview(task, attempt, event.step ?? 0);
  if (event.status === undefined) return before; // a checkpoint, or something newer than this page
  const stage = event.stage ?? null;
  const place = placeOf(event.status, attempt, stage, event.step ?? 0, shareOf(event));
  if (comparePlaces(place, task.place) <= 0) return before === undefined ? before : withAttempt(before, attempt);
  return {
    ...withAttempt(task, attempt),
    place,
    status: event.status,
    stage: event.status === "in_progress" ? (stage ?? "loading") : null,
    step: ended(event.status) ? task.step : (event.step ?? 0),
    steps: event.steps ?? task.steps,
    progress: event.progress ?? 0,
    etaS: event.eta_s ?? null,
    loaded: shareOf(event),
    queuePosition: null,
    waitingFor: event.status === "queued" || stage === "loading" || (stage === null && !ended(event.status)) ? task.waitingFor : null,
    error: event.error ?? null,
  };
}

/** It says nothing of a task that goes on already; of those that wait the newest word counts. */
function onNote(before: Task | undefined, note: WaitNote, asked: number): Task | undefined {
  if (before === undefined || asked <= before.positionAsked || ended(before.status)) return before;
  if (before.status !== "queued") return before.stage === "loading" ? { ...before, waitingFor: note.waiting_for, positionAsked: asked } : before;
  return { ...before, waitingFor: note.waiting_for, queuePosition: note.queue_position, etaS: note.eta_s, positionAsked: asked };
}

function onSnapshot(before: Task | undefined, video: Video, asked: number): Task | undefined {
  let task = withAttempt(before ?? unknown(video.id), video.attempt);
  const place = placeOf(video.status, video.attempt, video.stage, video.step, shareOf(video));
  const ahead = comparePlaces(place, task.place);
  if (task.videoPlace === null || comparePlaces(place, task.videoPlace) > 0)
    task = { ...task, video: withLabels(video, task.video ?? video), videoPlace: place, steps: video.steps };
  // What its owner says of it has no place on its way: the newest answer counts.
  const labelled = withLabels(task.video!, video);
  if (labelled !== task.video && asked > task.labelsAsked) task = { ...task, labelsAsked: asked, video: labelled };
  if (ahead > 0)
    task = {
      ...task,
      place,
      status: video.status,
      stage: video.stage,
      step: video.step,
      steps: video.steps,
      progress: video.progress,
      etaS: video.eta_s,
      loaded: shareOf(video),
      error: video.error,
      queuePosition: null,
      waitingFor: video.waiting_for ?? null,
    };
  if (ahead >= 0 && video.status === "queued" && asked > task.positionAsked)
    task = { ...task, queuePosition: video.queue_position, etaS: video.eta_s, waitingFor: video.waiting_for ?? null, positionAsked: asked };
  // A snapshot does not say of which step its preview is: it stands for "some", and any event's is newer.
  if (video.preview_url !== null) task = withPreview(task, video.attempt, 0);
  return task;
}

function withLabels(video: Video, from: Video): Video {
  const same = video.favourite === from.favourite && video.tags.join() === from.tags.join();
  return same ? video : { ...video, favourite: from.favourite, tags: from.tags };
}

function shareOf(told: { loaded_bytes?: number | null; load_bytes?: number | null }): number | null {
  return told.loaded_bytes != null && told.load_bytes ? Math.min(1, told.loaded_bytes / told.load_bytes) : null;
}

/** The count of attempts only rises. A cancellation names none: it ends whichever there is. */
function withAttempt(task: Task, attempt: number): Task {
  return attempt > task.attempt ? { ...task, attempt } : task;
}

function withPreview(task: Task, attempt: number, step: number): Task {
  const known = task.preview;
  if (known !== null && (known.attempt - attempt || known.step - step) >= 0) return task;
  return { ...task, preview: { attempt, step } };
}
