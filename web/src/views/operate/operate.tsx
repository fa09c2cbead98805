// Operate: what the service does, for admins. One tab a subject; each asks for its own figures while it is shown.
import type { ComponentChildren } from "preact";
import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { explain } from "../../api/words";
import { t, type Key } from "../../i18n";
import { Failed } from "../../ui/controls";
import { route } from "../../ui/route";
import { KeysTab } from "./keys";
import { ModelsTab } from "./models";
import { OverviewTab } from "./overview";
import { UsageTab } from "./usage";
import { WorkersTab } from "./workers";

const TABS = ["overview", "models", "workers", "keys", "usage"] as const;
type Tab = (typeof TABS)[number];
const TITLES: Record<Tab, Key> = { overview: "operate.overview", models: "operate.models", workers: "operate.workers", keys: "operate.keys", usage: "operate.usage" };

export default function OperateView() {
  const tab = TABS.find((one) => one === route.value.rest[0]) ?? "overview";
  return (
    <div class="operate">
      <h1>{t("operate.title")}</h1>
      <nav class="tabs" aria-label={t("operate.title")}>
        {TABS.map((one) => (
          <a key={one} href={`#/operate/${one}`} aria-current={one === tab ? "page" : undefined}>
            {t(TITLES[one])}
          </a>
        ))}
      </nav>
      {tab === "overview" && <OverviewTab />}
      {tab === "models" && <ModelsTab />}
      {tab === "workers" && <WorkersTab />}
      {tab === "keys" && <KeysTab />}
      {tab === "usage" && <UsageTab />}
    </div>
  );
}

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
