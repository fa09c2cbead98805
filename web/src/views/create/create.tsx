// Create: the form on one side, what became of it on the other.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call } from "../../api/http";
import { models, modelsFailed, loadModels, videoModels, type VideoModel } from "../../api/models";
import type { EstimateShown } from "../../api/schema";
import { explain } from "../../api/words";
import { DraftCard, LiveCard } from "../../card/card";
import { duration, lang, number, t } from "../../i18n";
import { listed, listing, more, order, taskOf } from "../../tasks/store";
import { Button, Choice, Empty, Failed, Field, IconButton } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { hidden } from "../library/deleting";
import { change, drafts, estimateQueryOf, form, image, model, remixOf, submit } from "./composer";
import { examplesFor, isTiny } from "./examples";
import { lengthsOf, sizesOf } from "./rules";

const SHOWN = 24;
const MAX_PROMPT = 4_000;
const MAX_IMAGE_BYTES = 20_000_000;
const IMAGE_TYPES = ["image/png", "image/jpeg", "image/webp"];

export function CreateView() {
  return (
    <div class="create">
      <section class="create-form" aria-labelledby="create-title">
        <h1 id="create-title">{t("create.title")}</h1>
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
      {drafts.value.map((draft) => (
        <DraftCard key={draft.id} draft={draft} />
      ))}
      {ids.map((id) => {
        const task = taskOf(id);
        return task && <LiveCard key={id} task={task} />;
      })}
    </div>
  );
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
  const remixing = remixOf.value;
  const imageProblem = useSignal<string | null>(null);
  const dragging = useSignal(false);
  const prompt = useRef<HTMLTextAreaElement>(null);

  const takesImage = chosen !== null && chosen.image !== "none" && remixing === null;
  const lacksImage = takesImage && chosen.image === "required" && image.value === null;
  const ready = chosen !== null && fields.prompt.trim() !== "" && !lacksImage;

  const take = (file: File | null | undefined) => {
    if (!file) return;
    if (!IMAGE_TYPES.includes(file.type)) imageProblem.value = t("error.invalid_image");
    else if (file.size > MAX_IMAGE_BYTES) imageProblem.value = t("error.image_too_large");
    else {
      imageProblem.value = null;
      image.value = file;
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
      {remixing !== null && (
        <div class="note">
          <Icon name="remix" />
          <p>{t("create.remixing", { prompt: remixing.prompt })}</p>
          <IconButton icon="close" label={t("create.remix_stop")} onClick={() => (remixOf.value = null)} />
        </div>
      )}
      <Field label={t("form.prompt")} hint={isTiny(chosen.model_name) ? t("form.prompt_tiny") : null}>
        {(ids) => (
          <textarea {...ids} ref={prompt} rows={3} maxLength={MAX_PROMPT} placeholder={t("form.prompt_placeholder")} value={fields.prompt} onInput={(event) => change({ prompt: event.currentTarget.value })} />
        )}
      </Field>
      <Examples model={chosen} />
      {takesImage && <ImagePicker required={chosen.image === "required"} problem={imageProblem.value} onTake={take} />}
      {remixing === null && (
        <>
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
          <Advanced model={chosen} />
        </>
      )}
      <div class="composer-end">
        <Button kind="primary" type="submit" class="wide" aria-disabled={!ready}>
          {t(remixing === null ? "create.submit" : "create.submit_remix")}
          <kbd aria-hidden="true">Ctrl ⏎</kbd>
        </Button>
        <Expectation model={chosen} />
      </div>
    </form>
  );
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
            <button type="button" class="chip" title={example.prompt} onClick={() => change({ prompt: example.prompt })}>
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
  const shown = useSignal<string | null>(null);
  const file = image.value;
  useEffect(() => {
    if (file === null) {
      shown.value = null;
      return;
    }
    const url = URL.createObjectURL(file);
    shown.value = url;
    return () => URL.revokeObjectURL(url);
  }, [file]);
  return (
    <div class="field">
      <span class="field-label" id="image-label">
        {t(required ? "form.image_required" : "form.image")}
      </span>
      <input ref={input} class="sr-only" type="file" tabIndex={-1} aria-labelledby="image-label" accept={IMAGE_TYPES.join(",")} onChange={(event) => {
          onTake(event.currentTarget.files?.[0]);
          event.currentTarget.value = "";
        }} />
      {file !== null && shown.value !== null ? (
        <div class="image-chosen">
          <img src={shown.value} alt={t("form.image_chosen", { name: file.name })} />
          <span>{file.name}</span>
          <IconButton icon="close" label={t("form.image_remove")} onClick={() => (image.value = null)} />
        </div>
      ) : (
        <button type="button" class="drop" onClick={() => input.current?.click()}>
          <Icon name="image" />
          <span>{t("form.image_drop")}</span>
        </button>
      )}
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
      <Field label={t("form.length", { n: number(seconds), frames })}>
        {(ids) => (
          <input {...ids} type="range" min={0} max={lengths.length - 1} step={1} value={at} aria-valuetext={t("time.seconds", { n: seconds })} onInput={(event) => change({ frames: lengths[Number(event.currentTarget.value)]?.frames ?? null })} />
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
