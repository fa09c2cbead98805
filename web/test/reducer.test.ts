import assert from "node:assert/strict";
import { test } from "node:test";
import type { Stage, State, Video } from "../src/api/schema";
import { compareIds, readMessage, type TaskEvent, type WaitNote } from "../src/tasks/events";
import { comparePlaces, ended, NO_TASKS, reduce, type Input, type Task, type Tasks } from "../src/tasks/reducer";

/** A small seeded generator: a failing order can be run again. */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function shuffled<T>(items: readonly T[], next: () => number): T[] {
  const mixed = [...items];
  for (let i = mixed.length - 1; i > 0; i--) {
    const j = Math.floor(next() * (i + 1));
    [mixed[i], mixed[j]] = [mixed[j]!, mixed[i]!];
  }
  return mixed;
}

function video(id: string, fields: Partial<Video>): Video {
  return {
    id, object: "video", model: "m", status: "queued", progress: 0, created_at: 1, completed_at: null, expires_at: null,
    prompt: "p", seconds: "2", size: "128x128", remixed_from_video_id: null, error: null, stage: null, step: 0, steps: 4,
    queue_position: null, eta_s: null, attempt: 0, failures: 0, priority: "normal", started_at: null, negative_prompt: "",
    frames: 17, fps: 8, guidance: [4, 4], shift: 5, seed: 1, preview_url: null, has_image: false, loaded_bytes: null, load_bytes: null,
    guided_share: 1, lossy: {}, waiting_for: null, step_cache: 0, fp8_attention: false, loras: [], favourite: false, tags: [], notice: null, task_id: null, url: null, events_url: null, ...fields,
  };
}

let count = 0;
function event(id: string, type: string, fields: Partial<TaskEvent>): Input {
  count += 1;
  return { kind: "event", event: { id: `${count}-0`, cursor: `${count}-0`, type: `video.${type}`, video: id, created_at: count, ...fields } };
}

/** A task's whole life: some attempts that die at some step, an end, and snapshots taken on the way. */
function life(id: string, next: () => number): Input[] {
  const inputs: Input[] = [];
  let asked = 0;
  const took = (fields: Partial<Video>) => {
    if (next() < 0.4) inputs.push({ kind: "snapshot", video: video(id, fields), asked: asked++ });
  };
  inputs.push(event(id, "queued", { status: "queued" }));
  took({ queue_position: 2 });
  const attempts = 1 + Math.floor(next() * 3);
  let previewed: string | null = null;
  for (let attempt = 1; attempt <= attempts; attempt++) {
    const base = { attempt, status: "in_progress" as State, steps: 4 };
    inputs.push(event(id, "in_progress", { attempt, status: "in_progress" }));
    took({ ...base, stage: "loading", preview_url: previewed });
    const reaches = attempt === attempts ? 4 : Math.floor(next() * 5);
    const stages: [Stage, number][] = [["loading", 0], ["encoding", 0]];
    for (let step = 0; step <= reaches; step++) stages.push(["denoising", step]);
    if (attempt === attempts) stages.push(["decoding", 4], ["uploading", 4]);
    for (const [stage, step] of stages) {
      inputs.push(event(id, "progress", { ...base, stage, step, eta_s: 4 - step }));
      took({ ...base, stage, step: stage === "denoising" ? step : stage === "decoding" || stage === "uploading" ? 4 : 0, eta_s: 4 - step, preview_url: previewed });
      if (stage === "denoising" && step === 2) {
        inputs.push(event(id, "checkpoint", { attempt, step }));
        inputs.push(event(id, "preview", { attempt, step }));
        previewed = "/preview";
      }
    }
    if (attempt < attempts) {
      inputs.push(event(id, "requeued", { attempt, status: "queued", reason: "a rank died" }));
      took({ attempt, queue_position: 0, preview_url: previewed });
    }
  }
  const ends: ["completed" | "failed" | "cancelled", Partial<TaskEvent>][] = [
    ["completed", { attempt: attempts }],
    ["failed", { attempt: attempts, error: { code: "unrenderable", message: "no" } }],
    ["cancelled", {}],
  ];
  const [how, fields] = ends[Math.floor(next() * 3)]!;
  inputs.push(event(id, how, { ...fields, status: how }));
  took({ status: how, attempt: attempts, step: 4, error: fields.error ?? null, preview_url: previewed });
  return inputs;
}

function shown(tasks: Tasks): unknown {
  // What a person sees; the figures of a queue that a task has left are not among it.
  return [...tasks.byId.values()].sort((a, b) => (a.id < b.id ? -1 : 1)).map((t) => ({
    id: t.id, place: t.place, status: t.status, attempt: t.attempt, stage: t.stage, error: t.error, preview: t.preview,
    video: t.video, etaS: ended(t.status) ? null : t.etaS, position: t.status === "queued" ? t.queuePosition : null,
  }));
}

test("any order of events and snapshots leads to the same tasks", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const next = random(seed);
    const inputs = [...life("a", next), ...life("b", next)];
    const straight = reduce(NO_TASKS, inputs);
    for (let round = 0; round < 5; round++) {
      const mixed = shuffled([...inputs, ...shuffled(inputs, next).slice(0, 10)], next);
      let tasks = NO_TASKS;
      for (let at = 0; at < mixed.length; ) {
        const size = 1 + Math.floor(next() * 5);
        tasks = reduce(tasks, mixed.slice(at, at + size));
        at += size;
      }
      assert.deepEqual(shown(tasks), shown(straight), `seed ${seed}`);
      assert.equal(tasks.cursor, straight.cursor);
    }
  }
});

test("no input ever moves a task back", () => {
  for (let seed = 1; seed <= 200; seed++) {
    const next = random(seed);
    let tasks = NO_TASKS;
    for (const input of shuffled(life("a", next), next)) {
      const before: Task | undefined = tasks.byId.get("a");
      tasks = reduce(tasks, [input]);
      const after = tasks.byId.get("a");
      if (before === undefined || after === undefined) continue;
      assert.ok(comparePlaces(after.place, before.place) >= 0);
      assert.ok(!ended(before.status) || after.status === before.status);
      if (before.preview !== null)
        assert.ok((after.preview!.attempt - before.preview.attempt || after.preview!.step - before.preview.step) >= 0);
    }
  }
});

test("repeated inputs return the very same object", () => {
  const inputs = life("a", random(7));
  const tasks = reduce(NO_TASKS, inputs);
  for (const input of inputs) assert.equal(reduce(tasks, [input]), tasks);
});

test("cancel wins over a late finish and a late step", () => {
  const cancelled = reduce(NO_TASKS, [
    event("a", "in_progress", { attempt: 1, status: "in_progress" }),
    event("a", "cancelled", { status: "cancelled" }),
  ]);
  const after = reduce(cancelled, [
    event("a", "completed", { attempt: 1, status: "completed" }),
    event("a", "progress", { attempt: 1, status: "in_progress", stage: "denoising", step: 3, steps: 4 }),
  ]);
  assert.equal(after.byId.get("a")!.status, "cancelled");
});

test("the percent is the gateway's own, from events and snapshots", () => {
  const at = (...inputs: Input[]) => reduce(NO_TASKS, inputs).byId.get("a")!.progress;
  const begun = event("a", "in_progress", { attempt: 1, status: "in_progress", progress: 1 });
  const step = event("a", "progress", { attempt: 1, status: "in_progress", stage: "denoising", step: 3, steps: 4, progress: 68 });
  assert.equal(at(begun), 1);
  assert.equal(at(begun, step), 68);
  assert.equal(at({ kind: "snapshot", asked: 1, video: video("a", { status: "in_progress", attempt: 1, stage: "denoising", step: 2, progress: 47 }) }), 47);
});

test("the share of the weights that is read only rises", () => {
  const read = (bytes: number) => event("a", "progress", { attempt: 1, status: "in_progress", stage: "loading", step: 0, steps: 4, loaded_bytes: bytes, load_bytes: 200 });
  const tasks = reduce(NO_TASKS, [read(0), read(100), read(50)]);
  assert.equal(tasks.byId.get("a")!.loaded, 0.5);
  assert.equal(reduce(tasks, [event("a", "progress", { attempt: 1, status: "in_progress", stage: "encoding", step: 0, steps: 4 })]).byId.get("a")!.loaded, null);
});

test("a step of an older attempt changes nothing", () => {
  const tasks = reduce(NO_TASKS, [
    event("a", "requeued", { attempt: 1, status: "queued" }),
    event("a", "in_progress", { attempt: 2, status: "in_progress" }),
  ]);
  const late = event("a", "progress", { attempt: 1, status: "in_progress", stage: "denoising", step: 4, steps: 4 });
  const after = reduce(tasks, [late]);
  assert.equal(after.byId.get("a"), tasks.byId.get("a"));
});

test("a deleted task does not come back", () => {
  const removals: Input[] = [{ kind: "deleted", id: "a" }, event("a", "deleted", {})]; // here, and in another tab
  for (const removal of removals) {
    const tasks = reduce(reduce(NO_TASKS, life("a", random(3))), [removal]);
    assert.equal(tasks.byId.size, 0);
    assert.equal(reduce(tasks, life("a", random(3)).slice(0, 5)).byId.size, 0);
  }
});

test("an older answer about the queue does not overtake a newer one", () => {
  const asked = (n: number, position: number): Input => ({ kind: "snapshot", video: video("a", { queue_position: position }), asked: n });
  const tasks = reduce(NO_TASKS, [asked(2, 1), asked(1, 5)]);
  assert.equal(tasks.byId.get("a")!.queuePosition, 1);
});

test("ids are compared as numbers", () => {
  assert.ok(compareIds("9-0", "10-0") < 0);
  assert.ok(compareIds("10-2", "10-10") < 0);
  assert.equal(compareIds("10-2", "10-2"), 0);
});

test("what is not an event is passed over", () => {
  for (const text of ["", "nonsense", "null", "[]", "3", '{"object":"other"}', '{"object":"video.event","id":1}'])
    assert.equal(readMessage(text), null);
  const note = { object: "video.event", type: "video.waiting", video: "a", waiting_for: { words: "waking" } };
  assert.equal(readMessage('{"object":"video.watching","cursor":null}'), "watching");
  assert.equal((readMessage(JSON.stringify(note)) as WaitNote).video, "a", "a note has no place in a task's life, but is read");
});

test("5,000 events leave as many tasks as there are, and nothing more", () => {
  const next = random(11);
  let tasks = NO_TASKS;
  for (let i = 0; i < 5_000; i++)
    tasks = reduce(tasks, [event(`t${i % 20}`, "progress", { attempt: 1, status: "in_progress", stage: "denoising", step: Math.floor(next() * 50), steps: 50 })]);
  assert.equal(tasks.byId.size, 20);
  assert.equal(tasks.deleted.size, 0);
});

test("a note tells the place in the line, and nothing of a task that has begun", () => {
  const note = (position: number, asked: number): Input => ({ kind: "note", asked, note: { type: "video.waiting", video: "a", waiting_for: null, queue_position: position, eta_s: 9 } });
  let tasks = reduce(NO_TASKS, [{ kind: "snapshot", video: video("a", { status: "queued", queue_position: 5 }), asked: 1 }, note(2, 3)]);
  assert.equal(tasks.byId.get("a")!.queuePosition, 2);
  tasks = reduce(tasks, [note(4, 2)]);
  assert.equal(tasks.byId.get("a")!.queuePosition, 2);
  tasks = reduce(tasks, [{ kind: "snapshot", video: video("a", { status: "completed" }), asked: 4 }]);
  assert.equal(reduce(tasks, [note(1, 9)]), tasks);
  assert.equal(reduce(NO_TASKS, [note(1, 1)]), NO_TASKS);
});
