// Paths of videos and pictures for <video> and <img>, which send the session's cookie by themselves.

/** Saves a path's bytes as a file. */
export function download(path: string, name: string): void {
  const link = document.createElement("a");
  link.href = path;
  link.download = name;
  link.click();
}

/** Never a redirect to an object store: the page may ask its own origin only. */
export function contentPath(id: string, variant: "video" | "thumbnail" | "spritesheet"): string {
  return `/v1/videos/${encodeURIComponent(id)}/content?variant=${variant}&redirect=false`;
}

/** The path of a preview; `attempt` and `step` make every one a URL of its own, so that no cache shows an older one. */
export function previewPath(id: string, attempt: number, step: number): string {
  return `/v1/videos/${encodeURIComponent(id)}/content?variant=preview&redirect=false&at=${attempt}.${step}`;
}
