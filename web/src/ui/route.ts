// Which view is shown: `#/library`, `#/operate/keys`. The fragment never reaches a server.
import { signal } from "@preact/signals";
import { ISSUER_WHYS, type IssuerWhy } from "../api/auth";

export type View = "create" | "library" | "chat" | "operate" | "account" | "share" | "invite";

export interface Route {
  readonly view: View;
  readonly rest: readonly string[];
}

const VIEWS: readonly View[] = ["create", "library", "chat", "operate", "account", "share"];

export function routeOf(hash: string): Route {
  const invite = /^#invite=([\w.-]{16,200})$/.exec(hash)?.[1];
  if (invite !== undefined) return { view: "invite", rest: [invite] };
  const [view, ...rest] = hash.replace(/^#\/?/, "").split("/").map(decode);
  return { view: VIEWS.find((known) => known === view) ?? "create", rest };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}

/** The one-time code of a printed link, `#code=…`. */
export function codeOf(hash: string): string | null {
  return /^#code=([\w-]{16,200})$/.exec(hash)?.[1] ?? null;
}

/** Why a login by the issuer came to nothing, `#login=…`. */
export function whyOf(hash: string): IssuerWhy | null {
  const said = /^#login=(\w+)$/.exec(hash)?.[1];
  return ISSUER_WHYS.find((why) => why === said) ?? null;
}

export const route = signal<Route>({ view: "create", rest: [] });

export function beginRoute(): void {
  route.value = routeOf(location.hash);
  window.addEventListener("hashchange", () => {
    route.value = routeOf(location.hash);
    window.scrollTo(0, 0);
  });
}

/** Puts another view in place of a link that has been used. */
export function replace(view: View): void {
  history.replaceState(null, "", `#/${view}`);
  route.value = { view, rest: [] };
}

export function go(view: View, ...rest: string[]): void {
  location.hash = `#/${[view, ...rest.map(encodeURIComponent)].join("/")}`;
}
