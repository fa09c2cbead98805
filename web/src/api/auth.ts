// Who is logged in: by a session cookie, which scripts cannot read. The page itself knows no key.
import { signal } from "@preact/signals";
import type { Role } from "./schema";

export interface Person {
  readonly tenant: string;
  readonly role: Role;
  readonly name: string;
  readonly person: string | null;
}

/** A guest's id says so. */
export function isGuest(person: Person): boolean {
  return person.person?.startsWith("g-") ?? false;
}

/** Why nobody is logged in; the last ones are what came of a login by the issuer. */
export type Why = "none" | "expired" | "refused_code" | IssuerWhy;
export type IssuerWhy = "stale" | "denied" | "refused" | "failed" | "away" | "terms";
export const ISSUER_WHYS: readonly IssuerWhy[] = ["stale", "denied", "refused", "failed", "away", "terms"];

export type Login =
  | { readonly state: "checking"; readonly away: boolean }
  | { readonly state: "out"; readonly why: Why }
  | { readonly state: "in"; readonly person: Person };

export const login = signal<Login>({ state: "checking", away: false });

/** Whose is what this tab holds: one person's, or where keys log in, one tenant's. Empty while nobody is in. */
export function owner(): string {
  const now = login.peek();
  return now.state === "in" ? (now.person.person ?? now.person.tenant) : "";
}
