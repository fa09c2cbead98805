// Deleting with time to change one's mind: hidden at once, deleted when the time is over or the page is left.
import { signal } from "@preact/signals";
import { open } from "../../api/http";
import { explain } from "../../api/words";
import { t } from "../../i18n";
import { remove } from "../../tasks/store";
import { say } from "../../ui/toasts";

const UNDO_MS = 6_000;

export const hidden = signal<ReadonlySet<string>>(new Set());
const due = new Map<string, number>();

/** Several are undone together. */
export function deleteLater(...ids: readonly string[]): void {
  const fresh = ids.filter((id) => !due.has(id));
  if (fresh.length === 0) return;
  hidden.value = new Set([...hidden.peek(), ...fresh]);
  for (const id of fresh) due.set(id, window.setTimeout(() => void deleteNow(id), UNDO_MS));
  say(t("library.deleted", { n: fresh.length }), "good", { text: t("undo"), run: () => fresh.forEach(undo) }, UNDO_MS);
}

function undo(id: string): void {
  window.clearTimeout(due.get(id));
  due.delete(id);
  show(id);
}

function show(id: string): void {
  hidden.value = new Set([...hidden.peek()].filter((other) => other !== id));
}

async function deleteNow(id: string): Promise<void> {
  due.delete(id);
  try {
    await remove(id);
  } catch (err) {
    say(explain(err), "bad");
  }
  show(id);
}

/** A page that goes away does not wait for the answer; the browser sends these all the same. */
export function beginDeleting(): void {
  window.addEventListener("pagehide", () => {
    for (const id of due.keys())
      void open(`/v1/videos/${encodeURIComponent(id)}`, { method: "DELETE", keepalive: true }).catch(() => undefined);
    due.clear();
  });
}
