// Create: the form on one side, what became of it on the other.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call } from "../../api/http";
import { models, modelsFailed, loadModels, videoModels, type VideoModel } from "../../api/models";
import type { EstimateShown } from "../../api/schema";
import { explain } from "../../api/words";
import { BatchCard } from "../../card/batch";
import { DraftCard, LiveCard } from "../../card/card";
import { duration, lang, number, t } from "../../i18n";
import { listed, listing, more, order, taskOf } from "../../tasks/store";
import { Button, Choice, Empty, Failed, Field, IconButton, Menu } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { Later } from "../../ui/later";
import { hidden } from "../library/deleting";
import { bringPrompt, change, chooseImage, COUNTS, drafts, dropSettings, estimateQueryOf, form, image, model, promptsBefore, submit, type Draft, type Form } from "./composer";
import { EnhanceButton, EnhanceNote } from "./enhance";
import { examplesFor, isTiny } from "./examples";
import { lengthsOf, sizesOf, STILL } from "./rules";

const SHOWN = 24;
const PROMPTS_SHOWN = 12;
const MAX_PROMPT = 4_000;
const MAX_IMAGE_BYTES = 20_000_000;
const IMAGE_TYPES = ["image/png", "image/jpeg", "image/webp"];

export function CreateView() {
  return (
    <div class="create">
      <section class="create-form" aria-labelledby="create-title">
        <div class="row row-spread">
          <h1 id="create-title">{t("create.title")}</h1>
          <Presets />
        </div>
        <Composer />
      </section>
      <section class="create-feed" aria-labelledby="feed-title">
        <h2 id="feed-title">{t("create.feed")}</h2>
        <Feed />
      </section>
    </div>
  );
}

function Feed() {
  const ids = order.value.filter((id) => !hidden.value.has(id)).slice(0, SHOWN);
  if (ids.length === 0 && drafts.value.length === 0) {
    if (listing.value === "failed") return <Failed words={t("error.unreachable")} onRetry={() => void more()} />;
    if (!listed.value) return <Skeletons />;
    return (
      <Empty icon="play" title={t("create.empty")}>
        <p>{t("create.empty_hint")}</p>
      </Empty>
    );
  }
  return (
    <div class="cards">
      {drafts.value.filter(isShown).map((draft) => (
        <DraftCard key={draft.id} draft={draft} />
      ))}
      {together(ids).map((group) => {
        const tasks = group.map((id) => taskOf(id)).filter((task) => task !== undefined);
        if (tasks.length === 0) return null;
        return tasks.length === 1 ? <LiveCard key={group[0]} task={tasks[0]!} /> : <BatchCard key={tasks[0]!.peek().video!.batch} together={tasks} />;
      })}
    </div>
  );
}

/** Of those that are sent together one is enough, until something is wrong with another. */
function isShown(draft: Draft, i: number, all: readonly Draft[]): boolean {
  return draft.batch === null || draft.problem !== null || all.findIndex((other) => other.batch === draft.batch) === i;
}

/** Ids of videos that were asked for together become one group, in the place of the newest. */
function together(ids: readonly string[]): string[][] {
  const groups = new Map<string, string[]>();
  for (const id of ids) {
    const name = taskOf(id)?.peek().video?.batch ?? id;
    groups.set(name, [...(groups.get(name) ?? []), id]);
  }
  return [...groups.values()];
}

function Skeletons() {
  return (
    <div class="cards" aria-busy="true">
      <p class="sr-only">{t("loading")}</p>
      {[0, 1, 2].map((i) => (
        <div key={i} class="card skeleton" aria-hidden="true">
          <div class="card-picture" />
          <div class="card-body">
            <span class="bone" />
            <span class="bone bone-short" />
          </div>
        </div>
      ))}
    </div>
  );
}

function Composer() {
  const chosen = model.value;
  const fields = form.value;
  const imageProblem = useSignal<string | null>(null);
  const dragging = useSignal(false);
  const prompt = useRef<HTMLTextAreaElement>(null);

  const takesImage = chosen !== null && chosen.image !== "none";
  const lacksImage = takesImage && chosen.image === "required" && image.value === null;
  const ready = chosen !== null && fields.prompt.trim() !== "" && !lacksImage;

  const take = (file: File | null | undefined) => {
    if (!file) return;
    if (!IMAGE_TYPES.includes(file.type)) imageProblem.value = t("error.invalid_image");
    else if (file.size > MAX_IMAGE_BYTES) imageProblem.value = t("error.image_too_large");
    else {
      imageProblem.value = null;
      chooseImage(file);
    }
  };
  const onSubmit = () => {
    if (!ready) {
      prompt.current?.focus();
      return;
    }
    submit();
    // The new card is the first of the feed, which may be below the form, or scrolled away.
    if (matchMedia("(max-width: 1099px)").matches) document.querySelector(".create-feed")?.scrollIntoView({ block: "start" });
    else window.scrollTo(0, 0);
  };

  if (chosen === null) return <NoModel />;
  return (
    <form
      class={`composer ${dragging.value ? "composer-over" : ""}`}
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        onSubmit();
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          onSubmit();
        }
      }}
      onPaste={(event) => {
        const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
        if (file && takesImage) {
          event.preventDefault();
          take(file);
        }
      }}
      onDragOver={(event) => {
        if (!takesImage) return;
        event.preventDefault();
        dragging.value = true;
      }}
      onDragLeave={() => (dragging.value = false)}
      onDrop={(event) => {
        if (!takesImage) return;
        event.preventDefault();
        dragging.value = false;
        take(event.dataTransfer?.files[0]);
      }}
    >
      {fields.taken !== null && <Taken taken={fields.taken} />}
      <Field label={t("form.prompt")} aside={<span class="field-tools"><EnhanceButton model={chosen} /><PromptHistory /></span>} hint={isTiny(chosen.model_name) ? t("form.prompt_tiny") : null}>
        {(ids) => (
          <textarea {...ids} ref={prompt} rows={3} maxLength={MAX_PROMPT} placeholder={t("form.prompt_placeholder")} value={fields.prompt} onInput={(event) => change({ prompt: event.currentTarget.value })} />
        )}
      </Field>
      <EnhanceNote model={chosen} />
      <Examples model={chosen} />
      {takesImage && <ImagePicker required={chosen.image === "required"} problem={imageProblem.value} onTake={take} />}
          <Field label={t("form.model")} aside={<ModelHint model={chosen} />}>
            {(ids) => (
              <select {...ids} value={chosen.id} onChange={(event) => change({ model: event.currentTarget.value, size: null, frames: null })}>
                {videoModels.value.map((one) => (
                  <option key={one.id} value={one.id}>
                    {one.id}
                  </option>
                ))}
              </select>
            )}
          </Field>
      <Shape model={chosen} />
      <div class="field">
        <span class="field-label">{t("form.count")}</span>
        <Choice label={t("form.count")} value={fields.count} onChange={(count) => change({ count })} options={COUNTS.map((value) => ({ value, text: value }))} />
      </div>
      <Advanced model={chosen} />
      <div class="composer-end">
        <Button kind="primary" type="submit" class="wide" aria-disabled={!ready}>
          {t(`create.submit_${fields.frames === STILL ? "still" : "clip"}${fields.count === "1" ? "" : "s"}`, { n: Number(fields.count) })}
          <kbd aria-hidden="true">Ctrl ⏎</kbd>
        </Button>
        <Expectation model={chosen} />
      </div>
    </form>
  );
}

/** Whose settings these are, and those among them that the form does not show. */
function Taken({ taken }: { taken: NonNullable<Form["taken"]> }) {
  const { fps: _, shift, guided_share, step_cache, fp8_attention, loras } = taken.unseen;
  const unseen = [shift != null ? `shift ${shift}` : "", guided_share ? `guided_share ${guided_share}` : "", step_cache ? `step_cache ${step_cache}` : "", fp8_attention ? "fp8_attention" : "", ...(loras ?? [])].filter(Boolean);
  return (
    <div class="note">
      <Icon name="remix" />
      <p>
        {t(taken.preset ? "create.preset" : "create.taken", { prompt: taken.prompt })}
        {unseen.length > 0 && <span class="facts">{unseen.map((one) => <span key={one}>{one}</span>)}</span>}
      </p>
      <IconButton icon="close" label={t("create.taken_drop")} onClick={dropSettings} />
    </div>
  );
}

function Presets() {
  const open = useSignal(false);
  if (model.value === null) return null;
  return (
    <>
      <IconButton icon="preset" label={t("presets.title")} onClick={() => (open.value = true)} />
      {open.value && <Later load={() => import("./presets")} onClose={() => (open.value = false)} />}
    </>
  );
}

function PromptHistory() {
  const prompts = promptsBefore(PROMPTS_SHOWN);
  if (prompts.length === 0) return null;
  return <Menu label={t("form.history")} icon="history" items={prompts.map((prompt) => ({ icon: "edit", text: prompt, onSelect: () => bringPrompt(prompt) }))} />;
}

function NoModel() {
  if (models.value === null) {
    if (modelsFailed.value !== null) return <Failed words={explain(modelsFailed.value)} onRetry={() => void loadModels()} />;
    return (
      <div class="composer" aria-busy="true">
        <p class="sr-only">{t("loading")}</p>
        <span class="bone bone-tall" />
        <span class="bone" />
        <span class="bone bone-short" />
      </div>
    );
  }
  return (
    <Empty icon="bolt" title={t("create.no_model")}>
      <p>{t("create.no_model_hint")}</p>
    </Empty>
  );
}

function Examples({ model: chosen }: { model: VideoModel }) {
  const examples = examplesFor(chosen.model_name, lang.value);
  return (
    <div class="examples">
      <span id="examples-label">{t("create.examples")}</span>
      <ul aria-labelledby="examples-label">
        {examples.map((example) => (
          <li key={example.prompt}>
            <button type="button" class="chip" title={example.prompt} onClick={() => bringPrompt(example.prompt)}>
              {example.label}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function ImagePicker({ required, problem, onTake }: { required: boolean; problem: string | null; onTake: (file: File | null | undefined) => void }) {
  const input = useRef<HTMLInputElement>(null);
  const choosing = useSignal(false);
  const chosen = image.value;
  return (
    <div class="field">
      <span class="field-label" id="image-label">
        {t(required ? "form.image_required" : "form.image")}
      </span>
      <input ref={input} class="sr-only" type="file" tabIndex={-1} aria-labelledby="image-label" accept={IMAGE_TYPES.join(",")} onChange={(event) => {
          onTake(event.currentTarget.files?.[0]);
          event.currentTarget.value = "";
        }} />
      {chosen !== null ? (
        <div class="image-chosen">
          <img src={chosen.url} alt={t("form.image_chosen", { name: chosen.file.name })} />
          <span>{chosen.file.name}</span>
          <IconButton icon="close" label={t("form.image_remove")} onClick={() => chooseImage(null)} />
        </div>
      ) : (
        <div class="drops">
          <button type="button" class="drop" onClick={() => input.current?.click()}>
            <Icon name="image" />
            <span>{t("form.image_drop")}</span>
          </button>
          <button type="button" class="drop" onClick={() => (choosing.value = true)}>
            <Icon name="library" />
            <span>{t("form.image_library")}</span>
          </button>
        </div>
      )}
      {choosing.value && <Later load={() => import("./from_library")} onClose={() => (choosing.value = false)} />}
      {problem && (
        <p class="field-error" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

function ModelHint({ model: chosen }: { model: VideoModel }) {
  const state = chosen.state;
  return (
    <span class="state" data-state={state}>
      {t(`state.${state}`)}
    </span>
  );
}

function Shape({ model: chosen }: { model: VideoModel }) {
  const sizes = sizesOf(chosen);
  const size = form.value.size ?? chosen.defaults.size;
  const lengths = lengthsOf(chosen);
  const frames = form.value.frames ?? chosen.defaults.frames;
  const at = Math.max(0, lengths.findIndex((length) => length.frames === frames));
  const seconds = lengths[at]?.seconds ?? 0;
  return (
    <>
      <div class="field">
        <span class="field-label">{t("form.size")}</span>
        <div class="sizes">
          <Choice label={t("form.size")} value={size} onChange={(value) => change({ size: value })} options={sizes.map((value) => ({ value, text: value.replace("x", " × ") }))} />
        </div>
      </div>
      <Field label={frames === STILL ? t("form.still") : t("form.length", { n: number(seconds), frames })}>
        {(ids) => (
          <input {...ids} type="range" min={0} max={lengths.length - 1} step={1} value={at} aria-valuetext={frames === STILL ? t("form.still") : t("time.seconds", { n: seconds })} onInput={(event) => change({ frames: lengths[Number(event.currentTarget.value)]?.frames ?? null })} />
        )}
      </Field>
    </>
  );
}

function Advanced({ model: chosen }: { model: VideoModel }) {
  const fields = form.value;
  const defaults = chosen.defaults;
  const guidance = defaults.guidance[0] === defaults.guidance[1] ? String(defaults.guidance[0]) : defaults.guidance.join(", ");
  return (
    <details class="drawer">
      <summary>
        <Icon name="gear" size={18} />
        {t("form.advanced")}
      </summary>
      <div class="drawer-grid">
        <Field label={t("form.seed")} hint={t("form.seed_hint")}>
          {(ids) => <input {...ids} inputMode="numeric" placeholder={t("form.random")} value={fields.seed} onInput={(event) => change({ seed: event.currentTarget.value.replace(/\D/g, "").slice(0, 10) })} />}
        </Field>
        <Field label={t("form.steps")} hint={t("form.steps_hint", { n: chosen.max_steps })}>
          {(ids) => <input {...ids} inputMode="numeric" placeholder={String(defaults.steps)} value={fields.steps} onInput={(event) => change({ steps: event.currentTarget.value.replace(/\D/g, "").slice(0, 4) })} />}
        </Field>
        <Field label={t("form.guidance")} hint={t("form.guidance_hint")}>
          {(ids) => <input {...ids} inputMode="decimal" placeholder={guidance} value={fields.guidance} onInput={(event) => change({ guidance: event.currentTarget.value.slice(0, 20) })} />}
        </Field>
      </div>
      <Field label={t("form.negative")}>
        {(ids) => <textarea {...ids} rows={2} maxLength={MAX_PROMPT} placeholder={defaults.negative_prompt || t("form.negative_placeholder")} value={fields.negative} onInput={(event) => change({ negative: event.currentTarget.value })} />}
      </Field>
    </details>
  );
}

const ASK_AFTER_MS = 250; // a slider that is being moved asks once

/** How long it will take, as the gateway says; asked again with each look at the models. */
function Expectation({ model: chosen }: { model: VideoModel }) {
  const fields = form.value;
  const state = chosen.state;
  const found = useSignal<EstimateShown | null>(null);
  const query = estimateQueryOf(fields, chosen, image.value !== null);
  useEffect(() => {
    const stop = new AbortController();
    const timer = window.setTimeout(() => {
      call("GET /v1/models/{name}/estimate", { path: { name: chosen.id }, query, signal: stop.signal })
        .then((answer) => (found.value = answer))
        .catch(() => (found.value = null)); // what is wrong with the form is said when it is sent
    }, ASK_AFTER_MS);
    return () => {
      window.clearTimeout(timer);
      stop.abort();
    };
  }, [chosen, JSON.stringify(query)]);
  const before = chosen.waiting + chosen.running;
  const words: string[] = [];
  if (before > 0) words.push(t("expect.waiting", { n: before }));
  if (state !== "ready") words.push(found.value?.wake_s ? t("expect.wakes", { time: duration(found.value.wake_s) }) : t(state === "waiting" ? "expect.waiting_room" : `expect.${state}`));
  if (found.value?.total_s != null) words.push(t(found.value.seen ? "expect.total" : "expect.rough", { time: duration(found.value.total_s) }));
  return <p class="expectation">{words.join(t("expect.join"))}</p>;
}
