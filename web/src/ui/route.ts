// Which view is shown: `#/library`, `#/operate/keys`. The fragment never reaches a server.
import { signal } from "@preact/signals";

export type View = "create" | "library" | "chat" | "operate" | "share";

export interface Route {
  readonly view: View;
  readonly rest: readonly string[];
}

const VIEWS: readonly View[] = ["create", "library", "chat", "operate", "share"];

export function routeOf(hash: string): Route {
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

export const route = signal<Route>({ view: "create", rest: [] });

export function beginRoute(): void {
  route.value = routeOf(location.hash);
  window.addEventListener("hashchange", () => {
    route.value = routeOf(location.hash);
    window.scrollTo(0, 0);
  });
}

export function go(view: View, ...rest: string[]): void {
  location.hash = `#/${[view, ...rest.map(encodeURIComponent)].join("/")}`;
}
