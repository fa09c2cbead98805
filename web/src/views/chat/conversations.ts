// Conversations stay in this browser: IndexedDB, one record each, apart for each person, or for the tenant of a key that is nobody's.
import { signal } from "@preact/signals";
import { login } from "../../api/auth";
import type { Stats } from "./stream";

const DATABASE = "turnout";
const STORE = "conversations";
const MAX_TITLE = 60;

export interface Message {
  readonly id: string;
  readonly role: "user" | "assistant";
  readonly text: string;
  readonly stats: Stats | null;
  /** Why the answer is not whole. */
  readonly broken: string | null;
  readonly stopped: boolean;
}

export interface Conversation {
  readonly id: string;
  readonly owner: string;
  readonly title: string;
  readonly model: string | null;
  readonly system: string;
  readonly temperature: number;
  readonly messages: readonly Message[];
  readonly updatedAt: number;
}

export const conversations = signal<readonly Conversation[]>([]);
export const currentId = signal<string | null>(null);

function owner(): string {
  const now = login.peek();
  return now.state === "in" ? (now.person.person ?? now.person.tenant) : "";
}

export function blank(): Conversation {
  return { id: crypto.randomUUID(), owner: owner(), title: "", model: null, system: "", temperature: 0.7, messages: [], updatedAt: Date.now() };
}

export function titleOf(messages: readonly Message[]): string {
  const first = messages.find((message) => message.role === "user")?.text.trim() ?? "";
  return first.length > MAX_TITLE ? `${first.slice(0, MAX_TITLE).trimEnd()}…` : first;
}

function request<T>(made: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    made.onsuccess = () => resolve(made.result);
    made.onerror = () => reject(made.error ?? new Error("IndexedDB"));
  });
}

let database: Promise<IDBDatabase> | null = null;

function opened(): Promise<IDBDatabase> {
  database ??= (() => {
    const made = indexedDB.open(DATABASE, 1);
    made.onupgradeneeded = () => made.result.createObjectStore(STORE, { keyPath: "id" });
    return request(made);
  })();
  return database;
}

export async function loadConversations(): Promise<void> {
  try {
    const store = (await opened()).transaction(STORE).objectStore(STORE);
    const all = (await request(store.getAll())) as Conversation[];
    conversations.value = all.filter((one) => one.owner === owner()).sort((a, b) => b.updatedAt - a.updatedAt);
  } catch {
    conversations.value = []; // storage is switched off: they last as long as this tab
  }
}

/** Puts a conversation first in the list and stores it. */
export function keep(conversation: Conversation): void {
  const kept = { ...conversation, title: conversation.title || titleOf(conversation.messages), updatedAt: Date.now() };
  conversations.value = [kept, ...conversations.peek().filter((other) => other.id !== kept.id)];
  void opened()
    .then((db) => request(db.transaction(STORE, "readwrite").objectStore(STORE).put(kept)))
    .catch(() => undefined);
}

export function drop(id: string): void {
  conversations.value = conversations.peek().filter((other) => other.id !== id);
  if (currentId.peek() === id) currentId.value = null;
  void opened()
    .then((db) => request(db.transaction(STORE, "readwrite").objectStore(STORE).delete(id)))
    .catch(() => undefined);
}

/** Drops all conversations of whoever is logged in. */
export async function forgetConversations(): Promise<void> {
  await loadConversations();
  for (const one of conversations.peek()) drop(one.id);
}

/** Saves a conversation as a JSON file, in the shape that chat APIs take. */
export function exportJson(conversation: Conversation): void {
  const messages = conversation.messages.map(({ role, text }) => ({ role, content: text }));
  const whole = {
    title: conversation.title,
    model: conversation.model,
    temperature: conversation.temperature,
    messages: conversation.system ? [{ role: "system", content: conversation.system }, ...messages] : messages,
  };
  const url = URL.createObjectURL(new Blob([JSON.stringify(whole, null, 2)], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `conversation-${conversation.id.slice(0, 8)}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
