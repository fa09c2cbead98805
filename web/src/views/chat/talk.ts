// One answer at a time: asks, reads the stream, and leaves the answer in the conversation.
import { signal } from "@preact/signals";
import { ApiError, open } from "../../api/http";
import { loadModels } from "../../api/models";
import { explain } from "../../api/words";
import { t } from "../../i18n";
import { conversations, keep, type Conversation, type Message } from "./conversations";
import { Reader, statsOf } from "./stream";

export interface Live {
  readonly conversation: string;
  readonly phase: "asking" | "waking" | "answering";
  readonly text: string;
  readonly since: number;
}

export const live = signal<Live | null>(null);

let stopper: AbortController | null = null;

export function stopAnswer(): void {
  stopper?.abort();
}

function message(role: Message["role"], text: string, rest: Partial<Message> = {}): Message {
  return { id: crypto.randomUUID(), role, text, stats: null, broken: null, stopped: false, ...rest };
}

/** Adds what the person said and asks for the answer. */
export async function askFor(conversation: Conversation, text: string, model: string): Promise<void> {
  await answer({ ...conversation, model, messages: [...conversation.messages, message("user", text)] }, model);
}

/** Asks again from a message of the person's own, with other words if they are given; what came after it is gone. */
export async function askAgain(conversationId: string, messageId: string, text?: string): Promise<void> {
  const conversation = conversations.peek().find((one) => one.id === conversationId);
  if (conversation === undefined || conversation.model === null) return;
  const { model } = conversation;
  const at = conversation.messages.findIndex((one) => one.id === messageId);
  const before = conversation.messages.slice(0, at);
  const own = conversation.messages[at];
  if (own === undefined) return;
  await answer({ ...conversation, messages: [...before, { ...own, text: text ?? own.text }] }, model);
}

async function answer(conversation: Conversation, model: string): Promise<void> {
  if (live.peek() !== null) return;
  keep(conversation);
  const startedAt = performance.now();
  const own = new AbortController();
  stopper = own;
  let text = "";
  let firstAt: number | null = null;
  let lastAt = startedAt;
  let pieces = 0;
  let counted: number | null = null;
  let broken: string | null = null;
  let drawn = 0;
  const show = (phase: Live["phase"]) => {
    live.value = { conversation: conversation.id, phase, text, since: startedAt };
  };
  const showSoon = () => {
    // Once a frame: a fast engine sends hundreds of pieces a second.
    if (drawn === 0)
      drawn = requestAnimationFrame(() => {
        drawn = 0;
        if (live.peek() !== null) show("answering");
      });
  };
  show("asking");
  try {
    for await (const piece of piecesOf(conversation, model, own.signal)) {
      if (piece.kind === "waiting" && firstAt === null) show("waking");
      else if (piece.kind === "usage") counted = piece.tokens;
      else if (piece.kind === "error") throw new ApiError(503, piece.message, piece.code, null, null);
      else if (piece.kind === "text") {
        lastAt = performance.now();
        firstAt ??= lastAt;
        pieces += 1;
        text += piece.text;
        showSoon();
      }
    }
    if (text === "") broken = t("chat.empty_answer");
  } catch (err) {
    if (!own.signal.aborted) broken = explain(err);
  } finally {
    cancelAnimationFrame(drawn);
    live.value = null;
    stopper = null;
  }
  void loadModels(); // it may have been woken by this
  const stats = firstAt === null ? null : statsOf(startedAt, firstAt, lastAt, pieces, counted);
  const reply = message("assistant", text, { stats, broken, stopped: own.signal.aborted });
  keep({ ...conversation, messages: [...conversation.messages, reply] });
}

async function* piecesOf(conversation: Conversation, model: string, signal: AbortSignal) {
  const said = conversation.messages.filter((one) => one.text !== "").map(({ role, text }) => ({ role, content: text }));
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }, ...said] : said;
  const body = { model, messages, temperature: conversation.temperature, stream: true, stream_options: { include_usage: true } };
  const response = await open("/v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  const reader = new Reader();
  const decoder = new TextDecoder();
  const bytes = response.body!.getReader();
  for (;;) {
    const { done, value } = await bytes.read();
    yield* reader.feed(done ? `${decoder.decode()}\n` : decoder.decode(value, { stream: true }));
    if (done) return;
  }
}
