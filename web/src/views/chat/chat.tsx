// Chat: conversations on one side, the current one with its composer on the other.
import { useSignal } from "@preact/signals";
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { chatModels, loadModels, models, modelsFailed, type ChatModel } from "../../api/models";
import { explain } from "../../api/words";
import { duration, number, t } from "../../i18n";
import { Button, Empty, Failed, Field, IconButton, Spinner } from "../../ui/controls";
import { copy } from "../../ui/copyable";
import { Icon } from "../../ui/icons";
import { Waking } from "../../ui/waking";
import { begin, branch, change, current, exportJson, find, loadList, unkept, type Conversation } from "./conversations";
import { ConversationList } from "./list";
import { Markdown } from "./markdown";
import { blobOf, MAX_PICTURES, PICTURE_TYPES, pictureOf } from "./pictures";
import type { Stats } from "./stream";
import { askAgain, askFor, live, recoverAnswer, stopAnswer } from "./talk";
import { besides, endBelow, type Message } from "./tree";

const SETTLE_MS = 400;

export default function ChatView() {
  const listOpen = useSignal(false);
  // Before anything can be typed: it begins a conversation, and what was said in another would not be shown.
  useLayoutEffect(() => {
    void loadList().then(recoverAnswer);
  }, []);
  const now = current.value;
  const model = chatModels.value.find((one) => one.id === now.model) ?? chatModels.value[0] ?? null;
  const startAnew = () => {
    begin();
    if (now.model !== null) change(current.peek().id, { model: now.model });
    listOpen.value = false;
    document.querySelector<HTMLElement>(".chat-input textarea")?.focus();
  };
  if (model === null) return <NoModel />;
  return (
    <div class="chat">
      <aside class={`chat-list ${listOpen.value ? "open" : ""}`} aria-label={t("chat.conversations")}>
        <Button icon="plus" class="wide" onClick={startAnew}>
          {t("chat.new")}
        </Button>
        <ConversationList onOpen={() => (listOpen.value = false)} />
      </aside>
      <section class="chat-main" aria-label={t("nav.chat")}>
        <header class="chat-head">
          <h1 class="sr-only">{t("nav.chat")}</h1>
          <button type="button" class="icon-button chat-list-toggle" aria-expanded={listOpen.value} aria-label={t("chat.conversations")} title={t("chat.conversations")} onClick={() => (listOpen.value = !listOpen.value)}>
            <Icon name="chat" />
          </button>
          <select aria-label={t("form.model")} value={model.id} onChange={(event) => change(now.id, { model: event.currentTarget.value })}>
            {chatModels.value.map((one) => (
              <option key={one.id} value={one.id}>
                {one.id}
              </option>
            ))}
          </select>
          <span class="state" data-state={model.state}>
            {t(`state.${model.state}`)}
          </span>
          <span class="spread" />
          {now.messages.length > 0 && <IconButton icon="download" label={t("chat.export")} onClick={() => exportJson(now)} />}
        </header>
        <Thread conversation={now} model={model} />
        <div>
          {unkept.value !== null && (
            <p class="chat-unkept" role="alert">
              <Icon name="warn" size={16} />
              {t("chat.unkept", { why: explain(unkept.value) })}
            </p>
          )}
          <Composer conversation={now} model={model} />
        </div>
      </section>
    </div>
  );
}

function NoModel() {
  if (models.value === null && modelsFailed.value === null) return <div class="centre"><Spinner /></div>;
  if (models.value === null) return <Failed words={explain(modelsFailed.value)} onRetry={() => void loadModels()} />;
  return (
    <Empty icon="chat" title={t("chat.no_model")}>
      <p>{t("chat.no_model_hint")}</p>
    </Empty>
  );
}

function Thread({ conversation, model }: { conversation: Conversation; model: ChatModel }) {
  const answering = live.value?.conversation === conversation.id ? live.value : null;
  const box = useRef<HTMLDivElement>(null);
  const follow = useRef(true);
  const top = useRef(0);
  const messages = branch.value;
  useLayoutEffect(() => {
    follow.current = true;
  }, [conversation.id]);
  useLayoutEffect(() => {
    if (answering !== null) follow.current = true; // whoever asks wants to see the answer
  }, [answering?.since]);
  useLayoutEffect(() => {
    if (box.current !== null && follow.current) box.current.scrollTop = box.current.scrollHeight;
  }, [conversation.id, messages.length, answering?.text, answering?.phase]);
  // What has just come grows while it is drawn: its height is known, and code has its colours, after the first frame.
  useEffect(() => {
    const until = performance.now() + SETTLE_MS;
    let frame = 0;
    const goDown = () => {
      if (box.current !== null && follow.current) box.current.scrollTop = box.current.scrollHeight;
      if (performance.now() < until) frame = requestAnimationFrame(goDown);
    };
    goDown();
    return () => cancelAnimationFrame(frame);
  }, [conversation.id, messages.length]);
  const starters = [t("chat.starter_1"), t("chat.starter_2"), t("chat.starter_3")];
  return (
    <div
      ref={box}
      class="thread"
      tabIndex={0}
      role="log"
      aria-label={t("chat.messages")}
      aria-live="off"
      onScroll={(event) => {
        const at = event.currentTarget;
        // What grows by itself, as by a picture that is loaded, is followed on: only the person goes up.
        if (at.scrollHeight - at.scrollTop - at.clientHeight < 60) follow.current = true;
        else if (at.scrollTop < top.current) follow.current = false;
        top.current = at.scrollTop;
      }}
      onLoadCapture={(event) => {
        if (follow.current) event.currentTarget.scrollTop = event.currentTarget.scrollHeight;
      }}
    >
      {messages.length === 0 && answering === null && (
        <Empty icon="chat" title={t("chat.empty")}>
          <p>{t("chat.empty_hint")}</p>
          <ul class="starters">
            {starters.map((text) => (
              <li key={text}>
                <button type="button" class="chip" aria-disabled={live.value !== null} onClick={() => void askFor(conversation, null, { text, pictures: [] }, model)}>
                  {text}
                </button>
              </li>
            ))}
          </ul>
        </Empty>
      )}
      {messages.map((message) => {
        const beside = besides(conversation.messages, message);
        return <Said key={message.id} message={message} conversation={conversation.id} model={model} at={beside.findIndex((one) => one.id === message.id)} of={beside.length} idle={live.value === null} />;
      })}
      {answering !== null && (
        <article class="said said-assistant" aria-label={t("chat.model_says")} aria-busy="true">
          {answering.text !== "" ? <Markdown text={answering.text} /> : <Waking since={answering.since} waking={answering.phase === "waking"} model={model} words={t("chat.thinking")} />}
        </article>
      )}
      <p class="sr-only" role="status">
        {answering === null ? (messages.at(-1)?.role === "assistant" ? t("chat.answered") : "") : t(answering.phase === "waking" ? "chat.waking" : "chat.answering")}
      </p>
    </div>
  );
}

/** A message that is there to stay: a long history is not rendered again for every word of an answer. It is number `at` of the `of`
 * branches that begin here. */
const Said = memo(
  function Said({ message, conversation, model, at, of, idle }: { message: Message; conversation: string; model: ChatModel; at: number; of: number; idle: boolean }) {
    const editing = useSignal<string | null>(null);
    const own = message.role === "user";
    const there = () => find(conversation)!;
    const turnTo = (step: number) => {
      const beside = besides(there().messages, message);
      change(conversation, { leaf: endBelow(there().messages, beside[at + step]!.id) });
    };
    const regenerate = () => {
      const asked = there().messages.find((one) => one.id === message.parent);
      if (asked !== undefined) void askAgain(there(), asked, model);
    };
    if (own && editing.value !== null)
      return (
        <form class="said said-user said-editing" onSubmit={(event) => {
            event.preventDefault();
            if (!idle) return; // what was typed stays until the answer that is being written has ended
            const text = editing.value?.trim() ?? "";
            editing.value = null;
            if (text !== "") void askFor(there(), message.parent, { text, pictures: message.pictures }, model);
          }}>
          <textarea aria-label={t("chat.edit")} rows={3} value={editing.value} onInput={(event) => (editing.value = event.currentTarget.value)} />
          <div class="row">
            <Button kind="primary" type="submit" aria-disabled={!idle}>{t("chat.send_edit")}</Button>
            <Button kind="quiet" onClick={() => (editing.value = null)}>{t("cancel")}</Button>
          </div>
        </form>
      );
    return (
      <article class={`said said-${message.role}`} aria-label={t(own ? "chat.you_say" : "chat.model_says")}>
        {message.pictures.length > 0 && <Pictures urls={message.pictures} />}
        {own ? message.text !== "" && <p class="said-text">{message.text}</p> : message.text !== "" && <Markdown text={message.text} />}
        {message.broken !== null && (
          <p class="said-broken">
            <Icon name="warn" size={18} />
            <span>{message.broken}</span>
          </p>
        )}
        <footer class="said-foot">
          {of > 1 && (
            <span class="said-branches">
              <IconButton icon="before" label={t("chat.branch_before")} disabled={at === 0 || !idle} onClick={() => turnTo(-1)} />
              <span aria-label={t("chat.branch", { n: at + 1, of })}>{`${at + 1} / ${of}`}</span>
              <IconButton icon="after" label={t("chat.branch_after")} disabled={at === of - 1 || !idle} onClick={() => turnTo(1)} />
            </span>
          )}
          {message.stopped && <span>{t("chat.stopped")}</span>}
          {message.figures !== null && <Figures figures={message.figures} />}
          <span class="spread" />
          {own && <IconButton icon="edit" label={t("chat.edit")} onClick={() => (editing.value = message.text)} />}
          {message.text !== "" && <IconButton icon="copy" label={t("chat.copy")} onClick={() => void copy(message.text)} />}
          {!own && idle && <IconButton icon="retry" label={t("chat.regenerate")} onClick={regenerate} />}
        </footer>
      </article>
    );
  },
  (before, after) => before.message === after.message && before.model === after.model && before.at === after.at && before.of === after.of && before.idle === after.idle,
);

function Pictures({ urls, onRemove }: { urls: readonly string[]; onRemove?: (at: number) => void }) {
  return (
    <ul class="said-pictures">
      {urls.map((url, i) => (
        <li key={`${i}-${url.length}`}>
          <Picture url={url} alt={t("chat.picture", { n: i + 1 })} />
          {onRemove && <IconButton icon="close" label={t("chat.picture_remove", { n: i + 1 })} onClick={() => onRemove(i)} />}
        </li>
      ))}
    </ul>
  );
}

function Picture({ url, alt }: { url: string; alt: string }) {
  const shown = useMemo(() => URL.createObjectURL(blobOf(url)), [url]);
  // Not at once: an <img> that is still loading it would fail, and the console would say so.
  useEffect(() => () => void window.setTimeout(() => URL.revokeObjectURL(shown), 10_000), [shown]);
  return <img src={shown} alt={alt} />;
}

function Figures({ figures: stats }: { figures: Stats }) {
  return (
    <span class="figures">
      {stats.tokensPerSecond !== null && <span>{t("chat.speed", { n: number(stats.tokensPerSecond, 1) })}</span>}
      <span>{t("chat.first", { time: duration(stats.firstTokenMs / 1000) })}</span>
      <span>{t("chat.tokens", { n: stats.tokens })}</span>
    </span>
  );
}

function Composer({ conversation, model }: { conversation: Conversation; model: ChatModel }) {
  const text = useSignal("");
  const pictures = useSignal<readonly string[]>([]);
  const problem = useSignal<string | null>(null);
  const dragging = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  const busy = live.value !== null;
  const sees = model.vision === true;
  const taken = sees ? pictures.value : [];
  const empty = text.value.trim() === "" && taken.length === 0;
  const submit = () => {
    if (empty || busy) return;
    void askFor(conversation, conversation.leaf, { text: text.value.trim(), pictures: taken }, model);
    text.value = "";
    pictures.value = [];
    problem.value = null;
  };
  const take = async (files: readonly File[]) => {
    problem.value = null;
    for (const file of files) {
      if (pictures.peek().length >= MAX_PICTURES) {
        problem.value = t("chat.pictures_most", { n: MAX_PICTURES });
        return;
      }
      try {
        const url = await pictureOf(file);
        pictures.value = [...pictures.peek(), url];
      } catch {
        problem.value = t("error.invalid_image");
      }
    }
  };
  return (
    <form
      class="chat-composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
      onPaste={(event) => {
        const files = [...(event.clipboardData?.files ?? [])].filter((one) => one.type.startsWith("image/"));
        if (files.length === 0) return;
        event.preventDefault();
        if (sees) void take(files);
        else problem.value = t("chat.no_vision", { model: model.id });
      }}
      onDragOver={(event) => {
        event.preventDefault();
        dragging.value = sees;
      }}
      onDragLeave={() => (dragging.value = false)}
      onDrop={(event) => {
        event.preventDefault();
        dragging.value = false;
        if (sees) void take([...(event.dataTransfer?.files ?? [])]);
        else problem.value = t("chat.no_vision", { model: model.id });
      }}
    >
      <details class="drawer">
        <summary>
          <Icon name="gear" size={18} />
          {t("chat.settings")}
        </summary>
        <div class="drawer-grid chat-settings">
          <Field label={t("chat.system")}>
            {(ids) => <textarea {...ids} rows={2} placeholder={t("chat.system_placeholder")} value={conversation.system} onInput={(event) => change(conversation.id, { system: event.currentTarget.value })} />}
          </Field>
          <Field label={t("chat.temperature", { n: number(conversation.temperature, 1) })} hint={t("chat.temperature_hint")}>
            {(ids) => <input {...ids} type="range" min={0} max={2} step={0.1} value={conversation.temperature} onInput={(event) => change(conversation.id, { temperature: Number(event.currentTarget.value) })} />}
          </Field>
        </div>
      </details>
      {problem.value !== null && (
        <p class="field-error" role="alert">
          {problem.value}
        </p>
      )}
      {taken.length > 0 && <Pictures urls={taken} onRemove={(at) => (pictures.value = pictures.peek().filter((_, i) => i !== at))} />}
      <div class={`chat-input ${dragging.value ? "composer-over" : ""}`}>
        {sees && (
          <>
            <input ref={input} hidden type="file" multiple aria-label={t("chat.add_picture")} accept={PICTURE_TYPES.join(",")} onChange={(event) => {
                void take([...(event.currentTarget.files ?? [])]);
                event.currentTarget.value = "";
              }} />
            <IconButton icon="image" label={t("chat.add_picture")} onClick={() => input.current?.click()} />
          </>
        )}
        <textarea
          aria-label={t("chat.message")}
          rows={1}
          placeholder={t(matchMedia("(pointer: coarse)").matches ? "chat.placeholder_touch" : "chat.placeholder")}
          value={text.value}
          onInput={(event) => (text.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            // While an input method composes, Enter chooses a word.
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            submit();
          }}
        />
        {busy ? (
          <button type="button" class="round" aria-label={t("chat.stop")} title={t("chat.stop")} onClick={stopAnswer}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="round" aria-label={t("chat.send")} title={t("chat.send")} aria-disabled={empty}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}
