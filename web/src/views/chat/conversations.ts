// Conversations: the gateway keeps them under the person; where it does not, they last as long as this page.
import { computed, signal } from "@preact/signals";
import { owner } from "../../api/auth";
import { ApiError, call } from "../../api/http";
import { newId } from "../../api/ids";
import { download } from "../../api/media";
import type { ConversationListed, ConversationShown } from "../../api/schema";
import { storedText, storeText } from "../../ui/stored";
import { branchOf, merged, type Message } from "./tree";

const CURRENT = "turnout.conversation";
const MAX_TITLE = 60;

export interface Conversation {
  readonly id: string;
  /** The gateway's; 0: it has none yet. */
  readonly revision: number;
  readonly title: string;
  readonly model: string | null;
  readonly system: string;
  readonly temperature: number;
  readonly leaf: string | null;
  readonly messages: readonly Message[];
}

/** Null: not asked yet. */
export const kept = signal<boolean | null>(null);
export const list = signal<readonly ConversationListed[]>([]);
export const search = signal("");
/** Why the last change is not kept. */
export const unkept = signal<unknown>(null);
export const failed = signal<unknown>(null);
const opened = signal<ReadonlyMap<string, Conversation>>(new Map());
const currentId = signal<string>(newId());

export const current = computed<Conversation>(() => opened.value.get(currentId.value) ?? blank(currentId.value));
/** The messages that are shown. */
export const branch = computed(() => branchOf(current.value.messages, current.value.leaf));

function blank(id: string): Conversation {
  return { id, revision: 0, title: "", model: null, system: "", temperature: 0.7, leaf: null, messages: [] };
}

/** What this tab keeps for its next load, and for the same person only. */
export function recall<T>(name: string): T | null {
  try {
    const { owner: whose, value } = JSON.parse(storedText(name, "sessionStorage") ?? "{}") as { owner?: string; value?: T };
    return whose === owner() ? (value ?? null) : null;
  } catch {
    return null; // not ours
  }
}

export function remember(name: string, value: unknown): void {
  storeText(name, value === null ? null : JSON.stringify({ owner: owner(), value }), "sessionStorage");
}

let lastOwner = "";

export async function loadList(): Promise<void> {
  if (lastOwner !== owner()) {
    opened.value = new Map(); // somebody else's
    list.value = [];
    search.value = "";
    lastOwner = owner();
    const last = recall<string>(CURRENT);
    begin(last ?? undefined);
  }
  const asked = search.peek();
  try {
    const found = await call("GET /v1/conversations", { query: { search: asked } });
    if (asked !== search.peek()) return;
    kept.value = found.most > 0;
    const here = asked === "" ? list.peek().filter((one) => one.revision === 0) : []; // those that are not kept
    list.value = [...here, ...found.data];
    failed.value = null;
    if (found.data.some((one) => one.id === currentId.peek())) await open(currentId.peek());
  } catch (err) {
    failed.value = err;
  }
}

export function begin(id: string = newId()): void {
  currentId.value = id;
  remember(CURRENT, id);
  unkept.value = null;
}

export async function open(id: string): Promise<void> {
  begin(id);
  if (opened.peek().has(id)) return;
  try {
    const stored = read(await call("GET /v1/conversations/{conversation_id}", { path: { conversation_id: id } }));
    const own = opened.peek().get(id); // what was said while it was on its way
    put(own === undefined ? stored : { ...stored, leaf: own.leaf ?? stored.leaf, messages: merged(stored.messages, own.messages) });
  } catch (err) {
    failed.value = err;
  }
}

function read(shown: ConversationShown): Conversation {
  const messages = shown.messages.map((one): Message => {
    const figures = one.figures ?? null;
    return {
      id: one.id,
      parent: one.parent ?? null,
      role: one.role,
      text: one.text ?? "",
      pictures: one.pictures ?? [],
      model: one.model ?? null,
      figures: figures === null ? null : { tokens: figures.tokens, firstTokenMs: figures.first_token_ms, tokensPerSecond: figures.tokens_per_second ?? null },
      broken: one.broken ?? null,
      stopped: one.stopped ?? false,
    };
  });
  const { id, revision, title, model, system, temperature, leaf } = shown;
  return { id, revision, title, model, system, temperature, leaf, messages };
}

export function find(id: string): Conversation | undefined {
  return opened.peek().get(id);
}

function put(conversation: Conversation): void {
  opened.value = new Map([...opened.peek(), [conversation.id, conversation]]);
}

/** Changes what is shown, and has it kept. A conversation without messages is not kept yet. */
export function change(id: string, fields: Partial<Omit<Conversation, "id" | "revision">>): Conversation {
  const before = opened.peek().get(id) ?? blank(id);
  const changed = { ...before, ...fields };
  const now = { ...changed, title: changed.title || titleOf(changed.messages) };
  put(now);
  if (now.messages.length > 0) saveSoon(id);
  return now;
}

function titleOf(messages: readonly Message[]): string {
  const first = messages.find((message) => message.role === "user")?.text.trim() ?? "";
  return first.length > MAX_TITLE ? `${first.slice(0, MAX_TITLE).trimEnd()}…` : first;
}

const saving = new Map<string, Promise<void>>();

/** One write at a time for each conversation; what changed meanwhile goes with the next. */
function saveSoon(id: string): void {
  if (kept.peek() === false) return showUnkept(id);
  const after = (saving.get(id) ?? Promise.resolve()).then(() => save(id));
  saving.set(id, after);
}

/** Resolves when all that was said until now is kept, or cannot be. */
export function settled(id: string): Promise<void> {
  return saving.get(id) ?? Promise.resolve();
}

const written = new WeakSet<Conversation>();

const dropped = new Set<string>();

/** Whether what is still said in a conversation of `whose` may be kept: not once it is deleted, or somebody else is logged in. */
export function isOpenTo(whose: string, id: string): boolean {
  return whose === owner() && !dropped.has(id);
}

/** Raises nothing: the writes that follow wait for this one. */
async function save(id: string, tries = 3): Promise<void> {
  const now = opened.peek().get(id);
  if (now === undefined || written.has(now) || !isOpenTo(lastOwner, id)) return;
  try {
    const listed = await call("PUT /v1/conversations/{conversation_id}", { path: { conversation_id: id }, body: bodyOf(now) });
    written.add(now);
    const latest = opened.peek().get(id);
    if (latest !== undefined) {
      const kept = { ...latest, revision: listed.revision };
      if (latest === now) written.add(kept);
      put(kept);
    }
    list.value = [listed, ...list.peek().filter((other) => other.id !== id)];
    if (currentId.peek() === id) unkept.value = null;
  } catch (err) {
    const problem = err instanceof ApiError && err.code === "conversation_changed" && tries > 0 ? await takeIn(id) : err;
    if (problem === null) return await save(id, tries - 1);
    if (!isOpenTo(lastOwner, id)) return;
    unkept.value = problem;
    showUnkept(id);
  }
}

/** Another tab has written: its messages come in beside ours. Returns why they do not; one that was deleted there stays so. */
async function takeIn(id: string): Promise<unknown> {
  try {
    const stored = read(await call("GET /v1/conversations/{conversation_id}", { path: { conversation_id: id } }));
    const own = opened.peek().get(id);
    if (own !== undefined) put({ ...own, revision: stored.revision, title: stored.title, messages: merged(stored.messages, own.messages) });
    return null;
  } catch (err) {
    return err;
  }
}

/** In the list all the same, for as long as the page is there. */
function showUnkept(id: string): void {
  const now = opened.peek().get(id);
  if (now === undefined) return;
  const at = Math.floor(Date.now() / 1000);
  const before = list.peek().find((one) => one.id === id);
  const shown: ConversationListed = { id, object: "conversation", revision: now.revision, title: now.title, model: now.model, created_at: before?.created_at ?? at, updated_at: at };
  list.value = [shown, ...list.peek().filter((other) => other.id !== id)];
}

function bodyOf({ revision, title, model, system, temperature, leaf, messages }: Conversation) {
  const said = messages.map(({ figures, pictures, ...rest }) => ({
    ...rest,
    pictures: [...pictures],
    figures: figures === null ? null : { tokens: figures.tokens, first_token_ms: figures.firstTokenMs, tokens_per_second: figures.tokensPerSecond },
  }));
  return { revision, title, model, system, temperature, leaf, messages: said };
}

export async function rename(id: string, title: string): Promise<void> {
  const here = opened.peek().get(id);
  if (here === undefined || here.revision > 0) {
    await settled(id);
    const listed = await call("PATCH /v1/conversations/{conversation_id}", { path: { conversation_id: id }, body: { title } });
    const now = opened.peek().get(id);
    if (now !== undefined) {
      const renamed = { ...now, title, revision: listed.revision };
      if (written.has(now)) written.add(renamed);
      put(renamed);
    }
    list.value = list.peek().map((one) => (one.id === id ? listed : one));
  } else {
    put({ ...here, title });
    showUnkept(id);
  }
}

export async function drop(id: string): Promise<void> {
  dropped.add(id);
  await settled(id);
  const stored = kept.peek() === true && list.peek().some((one) => one.id === id && one.revision > 0);
  try {
    if (stored) await call("DELETE /v1/conversations/{conversation_id}", { path: { conversation_id: id } });
  } catch (err) {
    if (!(err instanceof ApiError && err.status === 404)) {
      dropped.delete(id);
      throw err;
    }
  }
  list.value = list.peek().filter((other) => other.id !== id);
  const rest = new Map(opened.peek());
  rest.delete(id);
  opened.value = rest;
  if (currentId.peek() === id) begin();
}

/** Saves the branch that is shown as a JSON file, in the shape that chat APIs take. */
export function exportJson(conversation: Conversation): void {
  const messages = branchOf(conversation.messages, conversation.leaf).map((one) => ({ role: one.role, content: contentOf(one, true) }));
  const whole = {
    title: conversation.title,
    model: conversation.model,
    temperature: conversation.temperature,
    messages: conversation.system ? [{ role: "system", content: conversation.system }, ...messages] : messages,
  };
  const url = URL.createObjectURL(new Blob([JSON.stringify(whole, null, 2)], { type: "application/json" }));
  download(url, `conversation-${conversation.id.slice(0, 8)}.json`);
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** As chat APIs take it. */
export function contentOf({ text, pictures }: Message, sees: boolean) {
  if (!sees || pictures.length === 0) return text;
  return [{ type: "text", text }, ...pictures.map((url) => ({ type: "image_url", image_url: { url } }))];
}
