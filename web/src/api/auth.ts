// Who is logged in: by an API key that this tab knows, or by a session cookie that scripts cannot read.
//
// A key is kept in memory. It is written to the browser's storage only when the person ticked "remember".
import { signal } from "@preact/signals";
import type { Role } from "./schema";

const STORED = "turnout.key";

export interface Person {
  readonly tenant: string;
  readonly role: Role;
  readonly name: string;
}

export type Login =
  | { readonly state: "checking"; readonly away: boolean }
  | { readonly state: "out"; readonly why: "none" | "expired" | "refused_code" }
  | { readonly state: "in"; readonly person: Person; readonly by: "key" | "session" };

export const login = signal<Login>({ state: "checking", away: false });

let key: string | null = null;

export function currentKey(): string | null {
  return key;
}

/** Makes `value` the key of all further requests; null goes back to the cookie, if there is one. */
export function useKey(value: string | null): void {
  key = value;
}

export function rememberedKey(): string | null {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null; // storage is switched off
  }
}

export function rememberKey(value: string): void {
  try {
    localStorage.setItem(STORED, value);
  } catch {
    // The person stays logged in for as long as this tab is open.
  }
}

export function forgetKey(): void {
  key = null;
  try {
    localStorage.removeItem(STORED);
  } catch {
    // There is nothing stored then.
  }
}
