// What is copied by a click. The only module that writes to the clipboard.
import { useEffect, useState } from "preact/hooks";
import { t, type Key } from "../i18n";
import { Button } from "./controls";
import { say } from "./toasts";

/** Says that it is done, or that it could not be. */
export async function copy(text: string): Promise<void> {
  if (await toClipboard(text)) say(t("copied"));
}

/** Text to be copied, with the button that does it. */
export function Copyable({ text, label }: { text: string; label: Key }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = window.setTimeout(() => setCopied(false), 2_000);
    return () => window.clearTimeout(timer);
  }, [copied]);
  return (
    <div class="copyable">
      <code tabIndex={0} aria-label={t(label)}>{text}</code>
      <Button kind="quiet" icon={copied ? "check" : "copy"} onClick={() => void toClipboard(text).then(setCopied)}>
        {t(copied ? "copied" : "copy")}
      </Button>
    </div>
  );
}

async function toClipboard(text: string): Promise<boolean> {
  try {
    // Browsers leave the clipboard out where the page is reached by plain http from another machine.
    if ("clipboard" in navigator) await navigator.clipboard.writeText(text);
    else copySelected(text);
    return true;
  } catch {
    say(t("copy_failed"), "bad");
    return false;
  }
}

/** The older way. It copies what is selected, so something must be, and where a dialog is open, in the dialog. */
function copySelected(text: string): void {
  const place = document.createElement("span");
  place.className = "sr-only";
  place.textContent = text;
  const put = (event: ClipboardEvent) => {
    event.preventDefault();
    event.clipboardData?.setData("text/plain", text);
  };
  (document.querySelector("dialog[open]") ?? document.body).append(place);
  getSelection()?.selectAllChildren(place);
  document.addEventListener("copy", put);
  const done = document.execCommand("copy");
  document.removeEventListener("copy", put);
  place.remove();
  if (!done) throw new Error("the browser does not copy");
}
