// Messages are a tree: an edit or another answer is a branch beside the one before. Pure.
import type { Stats } from "./stream";

export interface Message {
  readonly id: string;
  readonly parent: string | null;
  readonly role: "user" | "assistant";
  readonly text: string;
  /** data: URLs. */
  readonly pictures: readonly string[];
  readonly model: string | null;
  readonly figures: Stats | null;
  /** Why the answer is not whole. */
  readonly broken: string | null;
  readonly stopped: boolean;
}

/** From the first message to the leaf. */
export function branchOf(messages: readonly Message[], leaf: string | null): Message[] {
  const byId = new Map(messages.map((one) => [one.id, one]));
  const branch: Message[] = [];
  for (let at = leaf === null ? undefined : byId.get(leaf); at !== undefined && branch.length < messages.length; at = at.parent === null ? undefined : byId.get(at.parent)) branch.unshift(at);
  return branch;
}

/** Those that stand in a message's place on other branches, and itself. */
export function besides(messages: readonly Message[], message: Message): Message[] {
  return messages.filter((one) => one.parent === message.parent && one.role === message.role);
}

/** The end of the newest branch below a message. */
export function endBelow(messages: readonly Message[], id: string): string {
  let end = id;
  for (let next: Message | undefined; (next = messages.findLast((one) => one.parent === end)) !== undefined; ) end = next.id;
  return end;
}

/** What two tabs said in one conversation, together: no message of either is lost, and parents stay before their children. */
export function merged(stored: readonly Message[], own: readonly Message[]): Message[] {
  const known = new Set(stored.map((one) => one.id));
  return [...stored, ...own.filter((one) => !known.has(one.id))];
}
