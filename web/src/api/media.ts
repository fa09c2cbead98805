// Paths of videos and pictures for <video> and <img>, which send the session's cookie by themselves.

const BETWEEN_MS = 300; // browsers drop downloads that are asked for at once

/** Saves videos and pictures as files, which the gateway names. */
export function downloadAll(videos: readonly { id: string; frames: number }[]): void {
  videos.forEach(({ id, frames }, i) => window.setTimeout(() => download(contentPath(id, frames === 1 ? "picture" : "video")), i * BETWEEN_MS));
}

/** Saves what is at a URL as a file; without a name, whoever answers gives one. */
export function download(url: string, name = ""): void {
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
}

/** Never a redirect to an object store: the page may ask its own origin only. */
export function contentPath(id: string, variant: "video" | "thumbnail" | "spritesheet" | "picture"): string {
  return `/v1/videos/${encodeURIComponent(id)}/content?variant=${variant}&redirect=false`;
}

/** The path of a preview; `attempt` and `step` make every one a URL of its own, so that no cache shows an older one. */
export function previewPath(id: string, attempt: number, step: number): string {
  return `/v1/videos/${encodeURIComponent(id)}/content?variant=preview&redirect=false&at=${attempt}.${step}`;
}
