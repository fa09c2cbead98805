// The tasks as signals: one for the ids, one for each task, so that an event renders one card and nothing else.
//
// Events are gathered for a moment and applied together. Snapshots fill in what events do not say: prompts, queue positions, and
// what a socket that was away has missed.
import { batch, effect, signal, type Signal } from "@preact/signals";
import { ApiError, call } from "../api/http";
import type { Video, VideoList } from "../api/schema";
import { readMessage, type Status, type TaskEvent, type WaitNote } from "./events";
import { ended, idOf, NO_TASKS, reduce, type Input, type Task, type Tasks } from "./reducer";
import { connect, disconnect, hurry, listenClosely, type Listener } from "./socket";

const PAGE = 60;
const LOOK_AGAIN_MS = 30_000;
const MAX_LOOKS = 12;
const GATHER_MS = 100; // ten pictures a second show every step that an eye can follow, at a sixth of a frame rate's cost

/** Ids, newest first. */
export const order = signal<readonly string[]>([]);
/** How each task stands: it changes only when one does or is labelled, not with each step. */
export const statuses = signal<ReadonlyMap<string, Status>>(new Map());
export type Listing = "idle" | "loading" | "failed" | "all";
export const listing = signal<Listing>("idle");
/** Whether the first page has come: before that nobody knows whether there are tasks. */
export const listed = signal(false);
/** Tasks that have just ended, for the live region. */
export const announced = signal<Task | null>(null);

let tasks: Tasks = NO_TASKS;
const signals = new Map<string, Signal<Task>>();
let pending: Input[] = [];
let scheduled = false;
let asked = 0;
let oldest: string | null = null;
let timer: number | undefined;
let stopListening: (() => void) | undefined;
let lookedAt = new Map<string, number>();

const listener: Listener = {
  cursor: () => tasks.cursor,
  message(text) {
    const told = readMessage(text);
    if (told === null) return;
    if (told === "watching") return void refresh(); // what is listed from now on lacks nothing that is not told
    if (told.type === "video.waiting") pending.push({ kind: "note", note: told as WaitNote, asked: ask() });
    else {
      const event = told as TaskEvent;
      pending.push({ kind: "event", event });
      if (event.snapshot !== undefined) pending.push({ kind: "snapshot", video: event.snapshot, asked: -1 });
    }
    schedule();
  },
};

export function start(): void {
  connect(listener);
  timer = window.setInterval(look, LOOK_AGAIN_MS);
  stopListening = effect(() => listenClosely([...statuses.value.values()].some((status) => !ended(status))));
  window.addEventListener("online", reconnect);
}

export function stop(): void {
  stopListening?.();
  disconnect();
  window.clearInterval(timer);
  window.removeEventListener("online", reconnect);
  tasks = NO_TASKS;
  signals.clear();
  pending = [];
  oldest = null;
  lookedAt = new Map();
  batch(() => {
    order.value = [];
    statuses.value = new Map();
    listing.value = "idle";
    listed.value = false;
    announced.value = null;
  });
}

export function reconnect(): void {
  hurry(listener);
}

export function taskOf(id: string): Signal<Task> | undefined {
  return signals.get(id);
}

function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  window.setTimeout(flush, GATHER_MS);
}

function flush(): void {
  scheduled = false;
  const inputs = pending;
  pending = [];
  apply(inputs);
}

function apply(inputs: readonly Input[]): void {
  const before = tasks;
  tasks = reduce(tasks, inputs);
  if (tasks === before) return;
  batch(() => {
    let changed = before.byId.size !== tasks.byId.size;
    let moved = false;
    for (const id of new Set(inputs.map(idOf))) {
      const was = before.byId.get(id);
      const now = tasks.byId.get(id);
      if (was === now) continue;
      if (now === undefined) {
        signals.delete(id);
        changed = true;
        continue;
      }
      const known = signals.get(id);
      if (known === undefined) signals.set(id, signal(now));
      else known.value = now;
      if (was?.status !== now.status || was.videoPlace !== now.videoPlace || labelsOf(was) !== labelsOf(now)) moved = true;
      if (was?.video?.created_at !== now.video?.created_at) changed = true;
      if (now.video === null) void fetchOne(id);
      else if (ended(now.status) && was !== undefined && !ended(was.status)) {
        announced.value = now;
        if (now.videoPlace !== null && now.videoPlace.era !== now.place.era) void fetchOne(id);
      }
    }
    if (changed) order.value = sortedIds();
    if (changed || moved) statuses.value = new Map([...tasks.byId.values()].map((task) => [task.id, task.status]));
  });
}

function labelsOf(task: Task): string {
  return `${task.video?.favourite} ${task.video?.tags}`;
}

function sortedIds(): string[] {
  // Ids begin with the time, so they put tasks of the same second in order.
  return [...tasks.byId.values()]
    .filter((task) => task.video !== null)
    .sort((a, b) => b.video!.created_at - a.video!.created_at || (a.id < b.id ? 1 : -1))
    .map((task) => task.id);
}

/** Takes in videos that an answer brought; `when` is the number of the request. */
export function learn(videos: readonly Video[], when: number): void {
  apply(videos.map((video) => ({ kind: "snapshot", video, asked: when })));
}

/** The number of a request that is about to be sent. */
export function ask(): number {
  return asked++;
}

async function fetchOne(id: string): Promise<void> {
  const when = ask();
  lookedAt.set(id, performance.now());
  try {
    learn([await call("GET /v1/videos/{video_id}", { path: { video_id: id } })], when);
  } catch (err) {
    // Deleted elsewhere, or not to be reached now: `look` asks again.
    if (err instanceof ApiError && err.status === 404) apply([{ kind: "deleted", id }]);
  }
}

/** The newest page, and all that is known to go on: what a socket that was away has missed. */
async function refresh(): Promise<void> {
  const when = ask();
  if (!listed.peek()) listing.value = "loading";
  try {
    const page = await call("GET /v1/videos", { query: { limit: PAGE } });
    batch(() => {
      learn(page.data, when);
      if (!listed.peek()) noteEnd(page);
      listed.value = true;
    });
    const seen = new Set(page.data.map((video) => video.id));
    for (const task of tasks.byId.values()) if (!ended(task.status) && !seen.has(task.id)) void fetchOne(task.id);
  } catch {
    if (!listed.peek()) listing.value = "failed";
  }
}

function noteEnd(page: VideoList): void {
  oldest = page.last_id ?? oldest;
  listing.value = page.has_more ? "idle" : "all";
}

/** The next older page; does nothing while one is on its way, or when there is none. */
export async function more(): Promise<void> {
  if (listing.peek() === "loading" || listing.peek() === "all") return;
  if (!listed.peek()) return await refresh();
  listing.value = "loading";
  const when = ask();
  try {
    const page = await call("GET /v1/videos", { query: { limit: PAGE, after: oldest } });
    batch(() => {
      learn(page.data, when);
      noteEnd(page);
    });
  } catch {
    listing.value = "failed";
  }
}

/** What happens is told. This is for what a gateway could not tell: one that was killed between two events, say. */
function look(): void {
  if (document.hidden) return;
  const now = performance.now();
  let looks = 0;
  for (const task of tasks.byId.values()) {
    if (ended(task.status) && task.video !== null) continue;
    if (now - (lookedAt.get(task.id) ?? 0) < LOOK_AGAIN_MS || looks >= MAX_LOOKS) continue;
    looks += 1;
    void fetchOne(task.id);
  }
  if (lookedAt.size > 500) lookedAt = new Map();
}

export async function cancel(id: string): Promise<void> {
  const when = ask();
  learn([await call("POST /v1/videos/{video_id}/cancel", { path: { video_id: id } })], when);
}

export async function label(id: string, labels: { favourite?: boolean; tags?: string[] }): Promise<void> {
  const when = ask();
  learn([await call("PATCH /v1/videos/{video_id}", { path: { video_id: id }, body: labels })], when);
}

/** Deletes for good; see the library for the time to undo. */
export async function remove(id: string): Promise<void> {
  await call("DELETE /v1/videos/{video_id}", { path: { video_id: id } });
  apply([{ kind: "deleted", id }]);
}
