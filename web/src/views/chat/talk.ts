// One answer at a time: asks, reads the stream, and leaves the answer in the conversation. What has come is in this tab's storage, so
// that a reload keeps it.
import { signal } from "@preact/signals";
import { login, owner } from "../../api/auth";
import { ApiError, open as openAnswer } from "../../api/http";
import { newId } from "../../api/ids";
import { loadModels, type ChatModel } from "../../api/models";
import { explain } from "../../api/words";
import { t } from "../../i18n";
import { begin, change, contentOf, drop, find, isOpenTo, list, open, recall, remember, settled, unkept, type Conversation } from "./conversations";
import { Reader, statsOf } from "./stream";
import { branchOf, merged, type Message } from "./tree";

const CAME = "turnout.answer";
const REMEMBER_MS = 500;

export interface Live {
  readonly conversation: string;
  readonly phase: "asking" | "waking" | "answering";
  readonly text: string;
  readonly since: number;
}

export const live = signal<Live | null>(null);

let stopper: AbortController | null = null;
let asker = "";

// Whoever logs in next has nothing of an answer that somebody else asked for.
login.subscribe(() => {
  if (stopper !== null && owner() !== asker) stopAnswer();
});

export function stopAnswer(): void {
  stopper?.abort();
}

/** Deletes a conversation, with the answer that is being written in it. */
export async function deleteConversation(id: string): Promise<void> {
  const deleted = drop(id);
  if (live.peek()?.conversation === id) stopAnswer();
  await deleted;
}

function message(role: Message["role"], parent: string | null, rest: Partial<Message>): Message {
  return { id: newId(), parent, role, text: "", pictures: [], model: null, figures: null, broken: null, stopped: false, ...rest };
}

/** Adds what the person said below `parent`, and asks for the answer. */
export async function askFor(conversation: Conversation, parent: string | null, said: { text: string; pictures: readonly string[] }, model: ChatModel): Promise<void> {
  if (live.peek() !== null) return;
  const own = message("user", parent, said);
  await answer(change(conversation.id, { model: model.id, messages: [...conversation.messages, own], leaf: own.id }), own, model);
}

/** Asks for another answer to a message of the person's own; the one before stays on a branch of its own. */
export async function askAgain(conversation: Conversation, own: Message, model: ChatModel): Promise<void> {
  if (live.peek() === null) await answer(change(conversation.id, { model: model.id, leaf: own.id }), own, model);
}

interface Came {
  readonly conversation: string;
  readonly asked: Message;
  readonly reply: Message;
}

/** After a reload in the middle of an answer: what had come of it. */
export async function recoverAnswer(): Promise<void> {
  const came = recall<Came>(CAME);
  if (came === null || live.peek() !== null) return;
  // The question itself may not have been kept yet.
  if (list.peek().some((one) => one.id === came.conversation)) await open(came.conversation);
  else begin(came.conversation);
  remember(CAME, null);
  const { asked, reply } = came;
  const known = find(came.conversation)?.messages ?? [];
  if (known.some((one) => one.id === reply.id) || (asked.parent !== null && !known.some((one) => one.id === asked.parent))) return;
  change(came.conversation, { model: reply.model, messages: merged(known, [asked, { ...reply, broken: t("chat.reloaded") }]), leaf: reply.id });
}

async function answer(conversation: Conversation, asked: Message, model: ChatModel): Promise<void> {
  const startedAt = performance.now();
  const own = new AbortController();
  const reply = message("assistant", asked.id, { model: model.id });
  const whose = owner();
  stopper = own;
  asker = whose;
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
  let leaving = false; // the page is being loaded anew: the next one takes up what came
  const leave = () => {
    leaving = true;
    note();
  };
  const note = () => {
    if (text !== "") remember(CAME, { conversation: conversation.id, asked, reply: { ...reply, text } } satisfies Came);
  };
  const noting = window.setInterval(note, REMEMBER_MS);
  window.addEventListener("pagehide", leave);
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
  if (leaving) return;
  const rest = () => {
    window.clearInterval(noting);
    window.removeEventListener("pagehide", leave);
  };
  if (!isOpenTo(whose, conversation.id)) {
    rest();
    const now = login.peek();
    if (now.state !== "out" || now.why !== "expired") remember(CAME, null); // her own, if she logs in again
    return;
  }
  void loadModels(); // it may have been woken by this
  const figures = firstAt === null ? null : statsOf(startedAt, firstAt, lastAt, pieces, counted);
  const there = find(conversation.id) ?? conversation;
  change(conversation.id, { messages: [...there.messages, { ...reply, text, figures, broken, stopped: own.signal.aborted }], leaf: reply.id });
  await settled(conversation.id);
  rest();
  if (unkept.peek() === null) remember(CAME, null);
}

async function* piecesOf(conversation: Conversation, model: ChatModel, signal: AbortSignal) {
  const said = branchOf(conversation.messages, conversation.leaf)
    .filter((one) => one.text !== "" || one.pictures.length > 0)
    .map((one) => ({ role: one.role, content: contentOf(one, model.vision !== false) }));
  const messages = conversation.system.trim() ? [{ role: "system", content: conversation.system }, ...said] : said;
  const body = { model: model.id, messages, temperature: conversation.temperature, stream: true, stream_options: { include_usage: true } };
  const response = await openAnswer("/v1/chat/completions", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  const reader = new Reader();
  const decoder = new TextDecoder();
  const bytes = response.body!.getReader();
  for (;;) {
    const { done, value } = await bytes.read();
    yield* reader.feed(done ? `${decoder.decode()}\n` : decoder.decode(value, { stream: true }));
    if (done) return;
  }
}
