// What the person is about to ask for, and asking for it. Kept outside of the view: it survives a change of views.
import { computed, effect, signal } from "@preact/signals";
import { login, owner } from "../../api/auth";
import { call, Unreachable } from "../../api/http";
import { newId } from "../../api/ids";
import { videoModels, type VideoModel } from "../../api/models";
import type { Operations, PresetShown, Video } from "../../api/schema";
import { ask, learn, order, taskOf } from "../../tasks/store";
import { storedText, storeText } from "../../ui/stored";

const RETRIES = 4;
const DRAFT = "turnout.draft";
const SAME_CLICK_MS = 1_500;
const MAX_SEED = 2 ** 32 - 1;
const URL_KEPT_MS = 10_000;

/** How many videos one submission may ask for, each with a seed of its own. */
export const COUNTS = ["1", "2", "4", "8"] as const;

/** Settings that the form has no field for: they come with the video whose settings were taken. */
type Unseen = Pick<Body, "fps" | "shift" | "guided_share" | "step_cache" | "fp8_attention" | "loras">;

export interface Form {
  readonly prompt: string;
  readonly model: string | null;
  readonly size: string | null;
  readonly frames: number | null;
  readonly seed: string;
  readonly steps: string;
  readonly guidance: string;
  readonly negative: string;
  readonly count: (typeof COUNTS)[number];
  /** The prompt of the video that the settings are of, or the name of the preset, and those that have no field. */
  readonly taken: { readonly prompt: string; readonly preset?: boolean; readonly unseen: Unseen } | null;
}

export const BLANK: Form = { prompt: "", model: null, size: null, frames: null, seed: "", steps: "", guidance: "", negative: "", count: "1", taken: null };

export const form = signal<Form>(BLANK);
/** Counts prompts that came in whole, in place of the one that was typed. */
export const brought = signal(0);
/** The first frame, and a URL to show it by. */
export const image = signal<{ readonly file: File; readonly url: string } | null>(null);

export function chooseImage(file: File | null): void {
  const old = image.peek();
  image.value = file === null ? null : { file, url: URL.createObjectURL(file) };
  // Not at once: an <img> that is still loading it would fail, and the console would say so.
  if (old !== null) window.setTimeout(() => URL.revokeObjectURL(old.url), URL_KEPT_MS);
}

/** All of a video's settings, but for its picture. */
export function takeSettings(video: Video): void {
  const { fps, shift, guided_share, step_cache, fp8_attention, loras } = video;
  const unseen: Unseen = { fps, shift, ...(guided_share !== 1 && { guided_share }), ...(step_cache && { step_cache }), ...(fp8_attention && { fp8_attention }), ...(loras?.length && { loras }) };
  form.value = {
    prompt: video.prompt,
    model: video.model,
    size: video.size,
    frames: video.frames,
    seed: String(video.seed),
    steps: String(video.steps),
    guidance: video.guidance.join(", "),
    negative: video.negative_prompt,
    count: "1",
    taken: { prompt: video.prompt, unseen },
  };
  brought.value++;
}

/** An example, or a prompt from before. */
export function bringPrompt(prompt: string): void {
  change({ prompt });
  brought.value++;
}

/** A preset's settings in place of those in the form; the prompt stays. */
export function takePreset({ name, settings }: PresetShown): void {
  const { model: of, size, frames, steps, guidance, negative_prompt, ...unseen } = settings;
  const before = form.peek();
  form.value = {
    ...BLANK,
    prompt: before.prompt,
    seed: before.seed,
    count: before.count,
    model: of ?? model.peek()?.id ?? null,
    size: size ?? null,
    frames: frames ?? null,
    steps: steps == null ? "" : String(steps),
    guidance: guidance?.join(", ") ?? "",
    negative: negative_prompt ?? "",
    taken: { prompt: name, preset: true, unseen: Object.fromEntries(Object.entries(unseen).filter(([, value]) => value != null)) },
  };
}

/** What of a form a preset keeps. */
export function settingsOf(fields: Form, chosen: VideoModel): Operations["PUT /v1/presets/{name}"]["body"] {
  const { prompt: _, seed: __, model: of, size, frames, steps, guidance, negative_prompt, fps, shift, guided_share, step_cache, fp8_attention, loras } = bodyOf(fields, chosen);
  const kept = { model: of, size, frames, steps, guidance: guidance == null ? null : [guidance].flat(), negative_prompt, fps, shift, guided_share, step_cache, fp8_attention, loras };
  return Object.fromEntries(Object.entries(kept).filter(([, value]) => value != null));
}

export function dropSettings(): void {
  form.value = { ...BLANK, prompt: form.peek().prompt, model: form.peek().model };
}

/** The last prompts, each once, newest first: of all videos that the page knows. */
export function promptsBefore(most: number): string[] {
  const found = new Set<string>();
  for (const id of order.value) {
    const prompt = taskOf(id)?.peek().video?.prompt;
    if (prompt) found.add(prompt);
    if (found.size === most) break;
  }
  return [...found];
}

export const model = computed<VideoModel | null>(
  () => videoModels.value.find((m) => m.id === form.value.model) ?? videoModels.value[0] ?? null,
);

export function change(fields: Partial<Form>): void {
  form.value = { ...form.value, ...fields };
}

let whose: string | null = null;

/** What was typed stays through a reload of this tab, for as long as the same person is logged in; nothing of it is there for the next. */
export function beginDraft(): void {
  try {
    const { owner: last = null, ...kept } = JSON.parse(storedText(DRAFT, "sessionStorage") ?? "{}") as Partial<Form> & { owner?: string | null };
    if (typeof kept.prompt === "string") form.value = { ...BLANK, ...kept };
    whose = last;
  } catch {
    // There is no draft then.
  }
  effect(() => {
    if (login.value.state === "in" && whose !== owner()) {
      if (whose !== null) {
        form.value = BLANK;
        chooseImage(null);
        drafts.value = [];
        brought.value = brought.peek() + 1;
      }
      whose = owner();
    }
    storeText(DRAFT, JSON.stringify({ ...form.value, owner: whose }), "sessionStorage");
  });
}

export type Body = Operations["POST /v1/videos"]["body"];

/** A submission from the click on: its card is there before the gateway has answered. */
export interface Draft {
  readonly id: string;
  readonly batch: string | null;
  readonly prompt: string;
  readonly model: string;
  readonly size: string;
  readonly problem: unknown;
  readonly send: () => Promise<void>;
}

export const drafts = signal<readonly Draft[]>([]);

export function dropDraft(id: string): void {
  drafts.value = drafts.value.filter((draft) => draft.id !== id);
}

/** The body for a form; fields left empty are the model's defaults. */
export function bodyOf(fields: Form, chosen: VideoModel): Body {
  const body: Body = { prompt: fields.prompt.trim(), model: chosen.id };
  if (fields.size !== null) body.size = fields.size;
  if (fields.frames !== null) body.frames = fields.frames;
  if (fields.seed.trim() !== "") body.seed = Number(fields.seed);
  if (fields.steps.trim() !== "") body.steps = Number(fields.steps);
  if (fields.guidance.trim() !== "") body.guidance = fields.guidance.split(/[,，\s]+/).filter(Boolean).map(Number);
  if (fields.negative.trim() !== "") body.negative_prompt = fields.negative;
  return { ...body, ...(fields.model === chosen.id && fields.taken?.unseen) };
}

/** One body for each video of a submission: of several, every one has a seed of its own, and they share a name. */
export function bodiesOf(fields: Form, chosen: VideoModel, id: string, random: () => number): Body[] {
  const body = bodyOf(fields, chosen);
  const count = Number(fields.count);
  if (count === 1) return [body];
  const first = body.seed ?? Math.floor(random() * MAX_SEED);
  return Array.from({ length: count }, (_, i) => ({ ...body, seed: (first + i) % (MAX_SEED + 1), batch: id }));
}

type EstimateQuery = Operations["GET /v1/models/{name}/estimate"]["query"];

/** What of a form decides how long its video takes. */
export function estimateQueryOf(fields: Form, chosen: VideoModel, picture: boolean): EstimateQuery {
  const { size = null, frames = null, steps = null, guidance = null } = bodyOf(fields, chosen);
  return { size, frames, steps, guidance: guidance === null ? null : String(guidance), image: picture && chosen.image !== "none" };
}

let last = { what: "", at: -Infinity };

/** Whether the same was asked for a moment ago: the second click of a double click is no second submission. */
function isSameClick(what: string): boolean {
  const at = performance.now();
  const same = last.what === what && at - last.at < SAME_CLICK_MS;
  last = { what, at };
  return same;
}

export function submit(): void {
  const chosen = model.peek();
  if (chosen === null || form.peek().prompt.trim() === "") return;
  const picture = chosen.image === "none" ? null : (image.peek()?.file ?? null);
  if (isSameClick(JSON.stringify([form.peek(), chosen.id, picture?.name]))) return;
  const id = newId();
  for (const [i, body] of bodiesOf(form.peek(), chosen, id, Math.random).entries())
    send(body, body.size ?? chosen.defaults.size, `${id}.${i}`, (headers) => {
      if (picture === null) return call("POST /v1/videos", { body, headers });
      return call("POST /v1/videos", { body, form: formOf(body, picture), headers });
    });
}

type Changes = Operations["POST /v1/videos/{video_id}/remix"]["body"];

/** The same again, but for these: what is not named stays, the picture too. */
function remix(source: Video, changes: Changes): void {
  if (isSameClick(JSON.stringify([source.id, changes]))) return;
  send(source, source.size, newId(), (headers) =>
    call("POST /v1/videos/{video_id}/remix", { path: { video_id: source.id }, body: changes, headers }),
  );
}

export function again(video: Video): void {
  remix(video, {});
}

export function withNewSeed(video: Video): void {
  remix(video, { seed: Math.floor(Math.random() * MAX_SEED) });
}

function formOf(body: Body, picture: File): FormData {
  const data = new FormData();
  for (const [name, value] of Object.entries(body)) if (value != null) data.set(name, Array.isArray(value) ? value.join(",") : String(value));
  data.set("input_reference", picture);
  return data;
}

type Asked = Pick<Body, "prompt" | "model"> & { readonly batch?: string | null };

/** `key` is the same for each try: an answer that was lost on its way does not become a second video. */
function send(asked: Asked, size: string, key: string, request: (headers: Record<string, string>) => Promise<Video>): void {
  const put = (problem: unknown) => {
    const draft: Draft = { id: key, batch: asked.batch ?? null, prompt: asked.prompt, model: asked.model ?? "", size, problem, send: attempt };
    const known = drafts.peek().some((d) => d.id === key);
    drafts.value = known ? drafts.peek().map((d) => (d.id === key ? draft : d)) : [draft, ...drafts.peek()];
  };
  const asker = owner();
  const somebodyElseIsHere = () => owner() !== "" && owner() !== asker;
  const attempt = async () => {
    put(null);
    const when = ask();
    for (let tries = 0; !somebodyElseIsHere(); tries++) {
      try {
        const video = await request({ "Idempotency-Key": key });
        if (somebodyElseIsHere()) return;
        learn([video], when);
        return dropDraft(key);
      } catch (err) {
        if (somebodyElseIsHere()) return;
        if (!(err instanceof Unreachable) || tries >= RETRIES) return put(err);
        await new Promise((resume) => setTimeout(resume, 500 * 2 ** tries));
      }
    }
  };
  void attempt();
}
