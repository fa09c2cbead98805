// Which videos a filter lets through, and asking the gateway for those that the page does not know yet. What comes is learned as
// any other video, so that a view shows what it knows and a filter lets through, and nothing twice.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { call } from "../api/http";
import type { Status } from "./events";
import { ask, learn, listing, more, type Listing } from "./store";

const PAGE = 60;
const TYPED_MS = 250;

export interface Filter {
  /** Every word must occur in the prompt, in any order; one with # is a tag. */
  readonly words: string;
  readonly model: string;
  readonly status: Status | "";
  readonly favourite: boolean;
}

export const NO_FILTER: Filter = { words: "", model: "", status: "", favourite: false };

export function isFiltered(filter: Filter): boolean {
  return filter.words.trim() !== "" || filter.model !== "" || filter.status !== "" || filter.favourite;
}

/** The words of a filter, and its tag. */
export function readWords(text: string): { words: string[]; tag: string | null } {
  const all = text.split(/\s+/).filter(Boolean);
  const tag = all.find((word) => word.startsWith("#") && word.length > 1);
  return { words: all.filter((word) => !word.startsWith("#")), tag: tag?.slice(1) ?? null };
}

interface Shown {
  readonly prompt: string;
  readonly model: string;
  readonly status: string;
  readonly favourite: boolean;
  readonly tags: readonly string[];
}

export function matches(filter: Filter, video: Shown): boolean {
  if (filter.model !== "" && video.model !== filter.model) return false;
  if (filter.status !== "" && video.status !== filter.status) return false;
  if (filter.favourite && !video.favourite) return false;
  const { words, tag } = readWords(filter.words);
  if (tag !== null && !video.tags.includes(tag)) return false;
  const prompt = video.prompt.toLocaleLowerCase();
  return words.every((word) => prompt.includes(word.toLocaleLowerCase()));
}

class Search {
  readonly state = signal<Listing>("loading");
  private after: string | null = null;
  private over = false;

  constructor(private readonly filter: Filter) {}

  end(): void {
    this.over = true;
  }

  async next(): Promise<void> {
    if (this.over || this.state.peek() === "all") return;
    this.state.value = "loading";
    const { words, tag } = readWords(this.filter.words);
    const { model, status, favourite } = this.filter;
    const when = ask();
    try {
      const query = { limit: PAGE, after: this.after, query: words.join(" ") || undefined, tag, model: model || null, status: status || undefined, favourite: favourite || undefined };
      const page = await call("GET /v1/videos", { query });
      if (this.over) return;
      learn(page.data, when);
      this.after = page.last_id;
      this.state.value = page.has_more ? "idle" : "all";
    } catch {
      if (!this.over) this.state.value = "failed";
    }
  }
}

/** Brings what a filter lets through into the page, page by page; without a filter, all there is. */
export function useSearch(filter: Filter): { state: Signal<Listing>; next: () => Promise<void> } {
  const filtered = isFiltered(filter);
  const search = useMemo(() => new Search(filter), [JSON.stringify(filter)]);
  useEffect(() => {
    if (!filtered) return;
    const timer = window.setTimeout(() => void search.next(), TYPED_MS);
    return () => {
      window.clearTimeout(timer);
      search.end();
    };
  }, [search]);
  return filtered ? { state: search.state, next: () => (search.state.peek() === "loading" ? Promise.resolve() : search.next()) } : { state: listing, next: more };
}
