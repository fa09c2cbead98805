// Chat: conversations on one side, the current one with its composer on the other.
import { useSignal } from "@preact/signals";
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { chatModels, loadModels, models, modelsFailed, type ChatModel } from "../../api/models";
import { explain } from "../../api/words";
import { ago, duration, number, t } from "../../i18n";
import { Button, Empty, Failed, Field, IconButton, Spinner } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { say } from "../../ui/toasts";
import { blank, conversations, currentId, drop, exportJson, keep, loadConversations, type Conversation, type Message } from "./conversations";
import { Markdown } from "./markdown";
import { askAgain, askFor, live, stopAnswer } from "./talk";

export default function ChatView() {
  const fresh = useSignal<Conversation>(blank());
  const listOpen = useSignal(false);
  useEffect(() => void loadConversations(), []);
  const current = conversations.value.find((one) => one.id === currentId.value) ?? fresh.value;
  const model = chatModels.value.find((one) => one.id === current.model) ?? chatModels.value[0] ?? null;
  const change = (fields: Partial<Conversation>) => {
    const changed = { ...current, ...fields };
    if (current.messages.length > 0) keep(changed);
    else fresh.value = changed;
  };
  const begin = () => {
    fresh.value = { ...blank(), model: current.model };
    currentId.value = null;
    listOpen.value = false;
    document.querySelector<HTMLElement>(".chat-input textarea")?.focus();
  };
  if (model === null) return <NoModel />;
  return (
    <div class="chat">
      <aside class={`chat-list ${listOpen.value ? "open" : ""}`} aria-label={t("chat.conversations")}>
        <Button icon="plus" class="wide" onClick={begin}>
          {t("chat.new")}
        </Button>
        <ul class="plain-list">
          {conversations.value.map((one) => (
            <li key={one.id} class={one.id === current.id ? "current" : ""}>
              <button type="button" class="chat-title" aria-current={one.id === current.id ? "true" : undefined} onClick={() => {
                  currentId.value = one.id;
                  listOpen.value = false;
                }}>
                <span>{one.title || t("chat.untitled")}</span>
                <small>{ago(one.updatedAt / 1000, Date.now() / 1000)}</small>
              </button>
              <IconButton icon="trash" label={t("chat.delete", { title: one.title })} onClick={() => drop(one.id)} />
            </li>
          ))}
        </ul>
        <p class="chat-private">{t("chat.private")}</p>
      </aside>
      <section class="chat-main" aria-label={t("nav.chat")}>
        <header class="chat-head">
          <h1 class="sr-only">{t("nav.chat")}</h1>
          <button type="button" class="icon-button chat-list-toggle" aria-expanded={listOpen.value} aria-label={t("chat.conversations")} title={t("chat.conversations")} onClick={() => (listOpen.value = !listOpen.value)}>
            <Icon name="chat" />
          </button>
          <select aria-label={t("form.model")} value={model.id} onChange={(event) => change({ model: event.currentTarget.value })}>
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
          {current.messages.length > 0 && <IconButton icon="download" label={t("chat.export")} onClick={() => exportJson(current)} />}
        </header>
        <Thread conversation={current} model={model} onAsk={(text) => send(current, text, model)} />
        <Composer conversation={current} model={model} onChange={change} />
      </section>
    </div>
  );
}

function send(conversation: Conversation, text: string, model: ChatModel): void {
  currentId.value = conversation.id;
  void askFor(conversation, text, model.id);
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

function Thread({ conversation, model, onAsk }: { conversation: Conversation; model: ChatModel; onAsk: (text: string) => void }) {
  const answering = live.value?.conversation === conversation.id ? live.value : null;
  const box = useRef<HTMLDivElement>(null);
  const follow = useRef(true);
  useLayoutEffect(() => {
    if (box.current !== null && follow.current) box.current.scrollTop = box.current.scrollHeight;
  }, [conversation.id, conversation.messages.length, answering?.text, answering?.phase]);
  const messages = conversation.messages;
  const lastOwn = messages.findLast((message) => message.role === "user");
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
        follow.current = at.scrollHeight - at.scrollTop - at.clientHeight < 60;
      }}
    >
      {messages.length === 0 && answering === null && (
        <Empty icon="chat" title={t("chat.empty")}>
          <p>{t("chat.empty_hint")}</p>
          <ul class="starters">
            {starters.map((text) => (
              <li key={text}>
                <button type="button" class="chip" onClick={() => onAsk(text)}>
                  {text}
                </button>
              </li>
            ))}
          </ul>
        </Empty>
      )}
      {messages.map((message, i) => (
        <Said
          key={message.id}
          message={message}
          canRegenerate={message.role === "assistant" && i === messages.length - 1 && answering === null}
          onRegenerate={() => lastOwn && void askAgain(conversation.id, lastOwn.id)}
          onEdit={(text) => void askAgain(conversation.id, message.id, text)}
        />
      ))}
      {answering !== null && (
        <article class="said said-assistant" aria-label={t("chat.model_says")} aria-busy="true">
          {answering.text !== "" ? <Markdown text={answering.text} /> : <Waking since={answering.since} waking={answering.phase === "waking"} model={model} />}
        </article>
      )}
      <p class="sr-only" role="status">
        {answering === null ? (messages.at(-1)?.role === "assistant" ? t("chat.answered") : "") : t(answering.phase === "waking" ? "chat.waking" : "chat.answering")}
      </p>
    </div>
  );
}

/** Before the first word: the model thinks, or has to be woken. */
function Waking({ since, waking, model }: { since: number; waking: boolean; model: ChatModel }) {
  const passed = useSignal(0);
  useEffect(() => {
    const timer = window.setInterval(() => (passed.value = (performance.now() - since) / 1000), 500);
    return () => window.clearInterval(timer);
  }, [since]);
  const asleep = waking || model.state !== "ready";
  const wakeS = model.wake_s;
  return (
    <div class="waking">
      <p>
        <Spinner />
        {t(asleep ? "chat.waking" : "chat.thinking")}
        {passed.value >= 2 && <span class="waking-time">{duration(passed.value)}</span>}
      </p>
      {asleep && (wakeS === null ? <progress aria-label={t("chat.waking")} /> : <progress max={wakeS} value={Math.min(passed.value, wakeS * 0.97)} aria-label={t("chat.waking")} />)}
    </div>
  );
}

/** A message that is there to stay: a long history is not rendered again for every word of an answer. */
const Said = memo(
  function Said({ message, canRegenerate, onRegenerate, onEdit }: { message: Message; canRegenerate: boolean; onRegenerate: () => void; onEdit: (text: string) => void }) {
    const editing = useSignal<string | null>(null);
    const own = message.role === "user";
    if (own && editing.value !== null)
      return (
        <form class="said said-user said-editing" onSubmit={(event) => {
            event.preventDefault();
            const text = editing.value?.trim() ?? "";
            editing.value = null;
            if (text !== "") onEdit(text);
          }}>
          <textarea aria-label={t("chat.edit")} rows={3} value={editing.value} onInput={(event) => (editing.value = event.currentTarget.value)} />
          <div class="row">
            <Button kind="primary" type="submit">{t("chat.send_edit")}</Button>
            <Button kind="quiet" onClick={() => (editing.value = null)}>{t("cancel")}</Button>
          </div>
        </form>
      );
    return (
      <article class={`said said-${message.role}`} aria-label={t(own ? "chat.you_say" : "chat.model_says")}>
        {own ? <p class="said-text">{message.text}</p> : message.text !== "" && <Markdown text={message.text} />}
        {message.broken !== null && (
          <p class="said-broken">
            <Icon name="warn" size={18} />
            <span>{message.broken}</span>
          </p>
        )}
        <footer class="said-foot">
          {message.stopped && <span>{t("chat.stopped")}</span>}
          {message.stats !== null && <Figures message={message} />}
          <span class="spread" />
          {own && <IconButton icon="edit" label={t("chat.edit")} onClick={() => (editing.value = message.text)} />}
          {message.text !== "" && <IconButton icon="copy" label={t("chat.copy")} onClick={() => void navigator.clipboard.writeText(message.text).then(() => say(t("copied")))} />}
          {canRegenerate && <IconButton icon="retry" label={t("chat.regenerate")} onClick={onRegenerate} />}
        </footer>
      </article>
    );
  },
  (before, after) => before.message === after.message && before.canRegenerate === after.canRegenerate,
);

function Figures({ message }: { message: Message }) {
  const stats = message.stats!;
  return (
    <span class="figures">
      {stats.tokensPerSecond !== null && <span>{t("chat.speed", { n: number(stats.tokensPerSecond, 1) })}</span>}
      <span>{t("chat.first", { time: duration(stats.firstTokenMs / 1000) })}</span>
      <span>{t("chat.tokens", { n: stats.tokens })}</span>
    </span>
  );
}

function Composer({ conversation, model, onChange }: { conversation: Conversation; model: ChatModel; onChange: (fields: Partial<Conversation>) => void }) {
  const text = useSignal("");
  const busy = live.value !== null;
  const submit = () => {
    if (text.value.trim() === "" || busy) return;
    send(conversation, text.value.trim(), model);
    text.value = "";
  };
  return (
    <form class="chat-composer" onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}>
      <details class="drawer">
        <summary>
          <Icon name="gear" size={18} />
          {t("chat.settings")}
        </summary>
        <div class="drawer-grid chat-settings">
          <Field label={t("chat.system")}>
            {(ids) => <textarea {...ids} rows={2} placeholder={t("chat.system_placeholder")} value={conversation.system} onInput={(event) => onChange({ system: event.currentTarget.value })} />}
          </Field>
          <Field label={t("chat.temperature", { n: number(conversation.temperature, 1) })} hint={t("chat.temperature_hint")}>
            {(ids) => <input {...ids} type="range" min={0} max={2} step={0.1} value={conversation.temperature} onInput={(event) => onChange({ temperature: Number(event.currentTarget.value) })} />}
          </Field>
        </div>
      </details>
      <div class="chat-input">
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
          <button type="submit" class="round" aria-label={t("chat.send")} title={t("chat.send")} aria-disabled={text.value.trim() === ""}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}
