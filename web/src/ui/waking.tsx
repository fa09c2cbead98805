// A chat model that has not said anything yet: it thinks, or has to be woken.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { ChatModel } from "../api/models";
import { duration, t } from "../i18n";
import { Spinner } from "./controls";

/** `since` is by `performance.now`; `waking` is what its answer says, if it says so; `words` are for one that is awake. */
export function Waking({ since, waking, model, words }: { since: number; waking: boolean; model: ChatModel | undefined; words: string }) {
  const passed = useSignal(0);
  useEffect(() => {
    const timer = window.setInterval(() => (passed.value = (performance.now() - since) / 1000), 500);
    return () => window.clearInterval(timer);
  }, [since]);
  const asleep = waking || (model !== undefined && model.state !== "ready");
  const wakeS = model?.wake_s ?? null;
  return (
    <div class="waking">
      <p>
        <Spinner />
        {asleep ? t("chat.waking") : words}
        {passed.value >= 2 && <span class="waking-time">{duration(passed.value)}</span>}
      </p>
      {asleep && (wakeS === null ? <progress aria-label={t("chat.waking")} /> : <progress max={wakeS} value={Math.min(passed.value, wakeS * 0.97)} aria-label={t("chat.waking")} />)}
    </div>
  );
}
