// The prompt made better by a chat model: asked for by a button, shown in the form to be changed, and undone.
import { effect, signal } from "@preact/signals";
import { call } from "../../api/http";
import { chatModels, loadModels, type VideoModel } from "../../api/models";
import { explain } from "../../api/words";
import { t } from "../../i18n";
import { Button, IconButton } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { Waking } from "../../ui/waking";
import { brought, change, form, image } from "./composer";
import { STILL } from "./rules";

const PATIENCE_MS = 630_000; // the gateway has a deadline of its own

type Enhancing =
  | { readonly phase: "asking"; readonly prompt: string; readonly since: number; readonly stop: AbortController }
  | { readonly phase: "done"; readonly original: string; readonly by: string }
  | { readonly phase: "failed"; readonly problem: unknown };

const enhancing = signal<Enhancing | null>(null);

// Whoever goes on typing has the last word: nothing is rewritten that is not in the form any more.
effect(() => {
  const typed = form.value.prompt.trim();
  const now = enhancing.peek();
  if (now?.phase === "asking" && now.prompt !== typed) now.stop.abort();
});
brought.subscribe(() => {
  if (enhancing.peek()?.phase !== "asking") enhancing.value = null; // it was about another prompt
});

async function enhance(model: VideoModel): Promise<void> {
  const prompt = form.peek().prompt.trim();
  if (prompt === "" || enhancing.peek()?.phase === "asking") return;
  const stop = new AbortController();
  enhancing.value = { phase: "asking", prompt, since: performance.now(), stop };
  const body = { prompt, model: model.id, image: image.peek() !== null && model.image !== "none", still: form.peek().frames === STILL };
  try {
    const better = await call("POST /v1/prompts/enhance", { body, signal: stop.signal, patienceMs: PATIENCE_MS });
    enhancing.value = { phase: "done", original: prompt, by: better.prompt_model };
    change({ prompt: better.prompt });
  } catch (err) {
    enhancing.value = stop.signal.aborted ? null : { phase: "failed", problem: err };
  }
  void loadModels(); // it may have been woken by this
}

export function EnhanceButton({ model }: { model: VideoModel }) {
  if (!model.prompt_model) return null;
  const idle = form.value.prompt.trim() === "" || enhancing.value?.phase === "asking";
  return (
    <Button kind="quiet" icon="wand" title={t("enhance.hint", { model: model.prompt_model })} aria-disabled={idle} onClick={() => void enhance(model)}>
      {t("enhance.button")}
    </Button>
  );
}

/** What became of the last one. */
export function EnhanceNote({ model }: { model: VideoModel }) {
  const now = enhancing.value;
  if (now === null) return null;
  const drop = () => (enhancing.value = null);
  if (now.phase === "asking")
    return (
      <div class="note" role="status">
        <Waking since={now.since} waking={false} model={chatModels.value.find((one) => one.id === model.prompt_model)} words={t("enhance.asking")} />
        <Button kind="quiet" onClick={() => now.stop.abort()}>
          {t("cancel")}
        </Button>
      </div>
    );
  if (now.phase === "failed")
    return (
      <div class="note note-bad" role="alert">
        <Icon name="warn" />
        <p>{t("enhance.failed", { why: explain(now.problem) })}</p>
        <IconButton icon="close" label={t("close")} onClick={drop} />
      </div>
    );
  return (
    <div class="note" role="status">
      <Icon name="wand" />
      <p>
        {t("enhance.done", { model: now.by })}
        <span class="note-quote">{t("enhance.original", { prompt: now.original })}</span>
      </p>
      <Button kind="quiet" onClick={() => {
          change({ prompt: now.original });
          drop();
        }}>
        {t("enhance.undo")}
      </Button>
    </div>
  );
}
