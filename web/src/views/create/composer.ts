// What the person is about to ask for, and asking for it. Kept outside of the view: it survives a change of views.
import { computed, effect, signal } from "@preact/signals";
import { login } from "../../api/auth";
import { call, Unreachable } from "../../api/http";
import { videoModels, type VideoModel } from "../../api/models";
import type { Operations, Video } from "../../api/schema";
import { ask, learn } from "../../tasks/store";

const RETRIES = 4;
const DRAFT = "turnout.draft";

export interface Form {
  readonly prompt: string;
  readonly model: string | null;
  readonly size: string | null;
  readonly frames: number | null;
  readonly seed: string;
  readonly steps: string;
  readonly guidance: string;
  readonly negative: string;
}

export const BLANK: Form = { prompt: "", model: null, size: null, frames: null, seed: "", steps: "", guidance: "", negative: "" };

export const form = signal<Form>(BLANK);
export const image = signal<File | null>(null);
/** The video whose settings, seed and picture are kept while its words are changed. */
export const remixOf = signal<Video | null>(null);

export const model = computed<VideoModel | null>(
  () => videoModels.value.find((m) => m.id === form.value.model) ?? videoModels.value[0] ?? null,
);

export function change(fields: Partial<Form>): void {
  form.value = { ...form.value, ...fields };
}

let owner: string | null = null;

/** What was typed stays through a reload of this tab, for as long as the same tenant is logged in. */
export function beginDraft(): void {
  try {
    const { tenant = null, ...kept } = JSON.parse(sessionStorage.getItem(DRAFT) ?? "{}") as Partial<Form> & { tenant?: string | null };
    if (typeof kept.prompt === "string") form.value = { ...BLANK, ...kept };
    owner = tenant;
  } catch {
    // There is no draft then.
  }
  effect(() => {
    const now = login.value;
    if (now.state === "in" && owner !== now.person.tenant) {
      if (owner !== null) form.value = BLANK;
      owner = now.person.tenant;
    }
    const text = JSON.stringify({ ...form.value, tenant: owner });
    try {
      sessionStorage.setItem(DRAFT, text);
    } catch {
      // It is lost with the tab.
    }
  });
}

export type Body = Operations["POST /v1/videos"]["body"];

/** A submission from the click on: its card is there before the gateway has answered. */
export interface Draft {
  readonly id: string;
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
  return body;
}

type EstimateQuery = Operations["GET /v1/models/{name}/estimate"]["query"];

/** What of a form decides how long its video takes. */
export function estimateQueryOf(fields: Form, chosen: VideoModel, picture: boolean): EstimateQuery {
  const { size = null, frames = null, steps = null, guidance = null } = bodyOf(fields, chosen);
  return { size, frames, steps, guidance: guidance === null ? null : String(guidance), image: picture && chosen.image !== "none" };
}

export function submit(): void {
  const chosen = model.peek();
  if (chosen === null || form.peek().prompt.trim() === "") return;
  const source = remixOf.peek();
  if (source !== null) {
    remix(source, { prompt: form.peek().prompt.trim() });
    remixOf.value = null;
    return;
  }
  const body = bodyOf(form.peek(), chosen);
  submitBody(body, body.size ?? chosen.defaults.size, chosen.image === "none" ? null : image.peek());
}

function submitBody(body: Body, size: string, picture: File | null): void {
  send(body.prompt, body.model ?? "", size, (key) => {
    const headers = { "Idempotency-Key": key };
    if (picture === null) return call("POST /v1/videos", { body, headers });
    return call("POST /v1/videos", { body, form: formOf(body, picture), headers });
  });
}

type Changes = Operations["POST /v1/videos/{video_id}/remix"]["body"];

/** The same again, but for these: what is not named stays, the picture too. */
function remix(source: Video, changes: Changes): void {
  send(changes.prompt ?? source.prompt, source.model, source.size, (key) =>
    call("POST /v1/videos/{video_id}/remix", { path: { video_id: source.id }, body: changes, headers: { "Idempotency-Key": key } }),
  );
}

export function again(video: Video): void {
  remix(video, {});
}

export function withNewSeed(video: Video): void {
  remix(video, { seed: Math.floor(Math.random() * 2 ** 32) });
}

function formOf(body: Body, picture: File): FormData {
  const data = new FormData();
  for (const [name, value] of Object.entries(body)) if (value != null) data.set(name, Array.isArray(value) ? value.join(",") : String(value));
  data.set("input_reference", picture);
  return data;
}

function send(prompt: string, modelName: string, size: string, request: (key: string) => Promise<Video>): void {
  const id = crypto.randomUUID();
  const put = (problem: unknown) => {
    const draft: Draft = { id, prompt, model: modelName, size, problem, send: attempt };
    const known = drafts.peek().some((d) => d.id === id);
    drafts.value = known ? drafts.peek().map((d) => (d.id === id ? draft : d)) : [draft, ...drafts.peek()];
  };
  const attempt = async () => {
    put(null);
    const when = ask();
    for (let tries = 0; ; tries++) {
      try {
        // The same key each time: an answer that was lost on its way does not become a second video.
        const video = await request(id);
        learn([video], when);
        dropDraft(id);
        return;
      } catch (err) {
        if (err instanceof Unreachable && tries < RETRIES) {
          await new Promise((resume) => setTimeout(resume, 500 * 2 ** tries));
          continue;
        }
        put(err);
        return;
      }
    }
  };
  void attempt();
}
