// URLs of videos and pictures for <video> and <img>, which cannot carry a key in a header.
//
// With a session cookie the gateway's own path will do. With a key the bytes are fetched and kept as blobs: a bounded
// number of them, the least recently used go first, and none that is on the screen.
import { useEffect, useState } from "preact/hooks";
import { currentKey } from "./auth";
import { open } from "./http";

const MAX_BYTES = 96_000_000;
const TIMEOUT_MS = 120_000;

interface Kept {
  url: string;
  bytes: number;
  users: number;
}

const kept = new Map<string, Kept>();
const coming = new Map<string, Promise<Kept>>();
let total = 0;

async function fetched(path: string): Promise<Kept> {
  const answer = await open(path, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  const blob = await answer.blob();
  const made: Kept = { url: URL.createObjectURL(blob), bytes: blob.size, users: 0 };
  kept.set(path, made);
  total += made.bytes;
  return made;
}

async function take(path: string): Promise<Kept> {
  let found = kept.get(path);
  if (found === undefined) {
    let promise = coming.get(path);
    if (promise === undefined) {
      promise = fetched(path).finally(() => coming.delete(path));
      coming.set(path, promise);
    }
    found = await promise;
  }
  found.users += 1;
  kept.delete(path);
  kept.set(path, found); // the most recently used is last
  return found;
}

function give(path: string, taken: Kept): void {
  taken.users -= 1;
  for (const [oldPath, old] of kept) {
    if (total <= MAX_BYTES) break;
    if (old.users > 0) continue;
    URL.revokeObjectURL(old.url);
    total -= old.bytes;
    kept.delete(oldPath);
  }
  if (taken.users === 0 && path.includes("variant=preview")) {
    // The next preview has another name: this one is never asked for again.
    URL.revokeObjectURL(taken.url);
    if (kept.delete(path)) total -= taken.bytes;
  }
}

/** Drops what belongs to the person who has logged out. */
export function forgetMedia(): void {
  for (const old of kept.values()) URL.revokeObjectURL(old.url);
  kept.clear();
  total = 0;
}

export interface Media {
  readonly url: string | null;
  readonly failed: boolean;
}

/** The URL of a path's bytes while the component is there; null as long as they are on their way. */
export function useMedia(path: string | null): Media {
  const [media, setMedia] = useState<Media & { path: string | null }>({ path: null, url: null, failed: false });
  useEffect(() => {
    if (path === null) {
      setMedia({ path, url: null, failed: false });
      return;
    }
    if (currentKey() === null) {
      setMedia({ path, url: path, failed: false });
      return;
    }
    let wanted = true;
    let taken: Kept | null = null;
    take(path).then(
      (found) => {
        taken = found;
        if (wanted) setMedia({ path, url: found.url, failed: false });
        else give(path, found);
      },
      () => {
        // What was there before stays: an older preview is better than none.
        if (wanted) setMedia((before) => ({ ...before, failed: true }));
      },
    );
    return () => {
      wanted = false;
      if (taken !== null) give(path, taken);
    };
  }, [path]);
  return media;
}

/** Saves a path's bytes as a file. */
export async function download(path: string, name: string): Promise<void> {
  const taken = currentKey() === null ? null : await take(path);
  const link = document.createElement("a");
  link.href = taken?.url ?? path;
  link.download = name;
  link.click();
  if (taken !== null) setTimeout(() => give(path, taken), 10_000);
}

/** Never a redirect to an object store: the page may ask its own origin only. */
export function contentPath(id: string, variant: "video" | "thumbnail" | "spritesheet"): string {
  return `/v1/videos/${encodeURIComponent(id)}/content?variant=${variant}&redirect=false`;
}

/** The path of a preview; `attempt` and `step` make every one a URL of its own, so that no cache shows an older one. */
export function previewPath(id: string, attempt: number, step: number): string {
  return `/v1/videos/${encodeURIComponent(id)}/content?variant=preview&redirect=false&at=${attempt}.${step}`;
}
