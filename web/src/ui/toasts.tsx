// Short messages at the edge of the page, with at most one thing to do. A screen reader hears them once.
import { signal } from "@preact/signals";
import { IconButton } from "./controls";
import { t } from "../i18n";

export interface Toast {
  readonly id: number;
  readonly words: string;
  readonly kind: "good" | "bad";
  readonly action: { readonly text: string; readonly run: () => void } | null;
}

const SHOWN_MS = 6_000;
const MAX_SHOWN = 3;

const toasts = signal<readonly Toast[]>([]);
let count = 0;

export function say(words: string, kind: Toast["kind"] = "good", action: Toast["action"] = null, shownMs = SHOWN_MS): () => void {
  const id = count++;
  toasts.value = [...toasts.value, { id, words, kind, action }].slice(-MAX_SHOWN);
  const dismiss = () => {
    toasts.value = toasts.value.filter((toast) => toast.id !== id);
  };
  window.setTimeout(dismiss, shownMs);
  return dismiss;
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={`toast toast-${toast.kind}`}>
          <p>{toast.words}</p>
          {toast.action && (
            <button type="button" class="button button-quiet" onClick={() => {
                toast.action?.run();
                toasts.value = toasts.value.filter((other) => other.id !== toast.id);
              }}>
              {toast.action.text}
            </button>
          )}
          <IconButton icon="close" label={t("close")} onClick={() => (toasts.value = toasts.value.filter((other) => other.id !== toast.id))} />
        </div>
      ))}
    </div>
  );
}
