// Who runs this service: name, logo, footer and terms of use, as the operator has set them.
import { signal } from "@preact/signals";
import { storedText, storeText } from "../ui/stored";
import { ApiError, call } from "./http";
import type { SiteShown } from "./schema";

const STORED = "turnout.terms";
const PLAIN: SiteShown = { object: "site", name: "Turnout", logo: null, footer: [], terms: null };

/** Null until it is known. */
export const site = signal<SiteShown | null>(null);
/** Whether the terms of use are accepted in this browser, and whether it was tried without. */
export const accepted = signal(false);
export const missed = signal(false);

/** Raises Unreachable while the gateway is away. */
export async function loadSite(): Promise<void> {
  try {
    site.value = await call("GET /v1/site", {});
  } catch (err) {
    if (!(err instanceof ApiError)) throw err;
    site.value = PLAIN;
  }
  accepted.value = site.value.terms !== null && storedText(STORED) === site.value.terms;
  document.title = site.value.name;
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (icon !== null && site.value.logo !== null) {
    icon.removeAttribute("type");
    icon.href = site.value.logo;
  }
}

export function siteName(): string {
  return (site.value ?? PLAIN).name;
}

/** What is sent along by whoever comes in. */
export function acceptedTerms(): { terms?: string } {
  const terms = site.peek()?.terms ?? null;
  return terms !== null && accepted.peek() ? { terms } : {};
}

/** Whether somebody may come in; if not, the tick that is missing is pointed at. */
export function mayEnter(): boolean {
  missed.value = (site.peek()?.terms ?? null) !== null && !accepted.peek();
  return !missed.value;
}

export function accept(yes: boolean): void {
  accepted.value = yes;
  if (yes) missed.value = false;
  storeText(STORED, yes ? (site.peek()?.terms ?? "") : null);
}
