// What is asked for again and again while somebody looks at it.
import type { ComponentChildren } from "preact";
import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { explain } from "../api/words";
import { t } from "../i18n";
import { Failed } from "./controls";

export interface Polled<T> {
  readonly value: T | null;
  readonly problem: unknown;
  readonly again: () => void;
}

/** What `ask` answers, asked for again every `everyMs` while the tab is seen; the last answer stays through a failure. */
export function usePolled<T>(ask: () => Promise<T>, everyMs: number, deps: readonly unknown[] = []): Polled<T> {
  const value: Signal<T | null> = useSignal<T | null>(null);
  const problem = useSignal<unknown>(null);
  const round = useSignal(0);
  useEffect(() => {
    let over = false;
    let timer: number | undefined;
    const turn = async () => {
      if (!document.hidden) {
        try {
          const answer = await ask();
          if (over) return;
          value.value = answer;
          problem.value = null;
        } catch (err) {
          if (over) return;
          problem.value = err;
        }
      }
      timer = window.setTimeout(() => void turn(), everyMs);
    };
    void turn();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [round.value, ...deps]);
  return { value: value.value, problem: problem.value, again: () => (round.value += 1) };
}

/** An answer, or the bones of it, or why there is none. */
export function Loaded<T>({ polled, children }: { polled: Polled<T>; children: (value: T) => ComponentChildren }) {
  if (polled.value === null) {
    if (polled.problem !== null) return <Failed words={explain(polled.problem)} onRetry={polled.again} />;
    return (
      <div class="bones" aria-busy="true">
        <p class="sr-only">{t("loading")}</p>
        <span class="bone" />
        <span class="bone" />
        <span class="bone bone-short" />
      </div>
    );
  }
  return (
    <>
      {polled.problem !== null && <Failed words={`${t("operate.stale")} ${explain(polled.problem)}`} />}
      {children(polled.value)}
    </>
  );
}
