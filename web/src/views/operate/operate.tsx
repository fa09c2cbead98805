// Operate: what the service does, for admins. One tab a subject; each asks for its own figures while it is shown.
import { useLayoutEffect, useRef } from "preact/hooks";
import { lang, t, type Key } from "../../i18n";
import { route } from "../../ui/route";
import { AuditTab } from "./audit";
import { KeysTab } from "./keys";
import { LogsTab } from "./logs";
import { ModelsTab } from "./models";
import { OverviewTab } from "./overview";
import { PeopleTab } from "./people";
import { TasksTab } from "./tasks";
import { UsageTab } from "./usage";
import { WorkersTab } from "./workers";

const TABS = ["overview", "tasks", "models", "workers", "people", "keys", "usage", "logs", "audit"] as const;
type Tab = (typeof TABS)[number];
const TITLES: Record<Tab, Key> = { overview: "operate.overview", tasks: "operate.tasks", logs: "operate.logs", audit: "operate.audit", models: "operate.models", workers: "operate.workers", people: "operate.people", keys: "operate.keys", usage: "operate.usage" };

export default function OperateView() {
  const tab = TABS.find((one) => one === route.value.rest[0]) ?? "overview";
  const tabs = useRef<HTMLElement>(null);
  // On a phone they do not all fit: the one that is shown is in sight.
  useLayoutEffect(() => {
    const here = tabs.current?.querySelector<HTMLElement>("[aria-current]");
    if (here) tabs.current!.scrollLeft = here.offsetLeft - tabs.current!.offsetLeft - (tabs.current!.clientWidth - here.offsetWidth) / 2;
  }, [tab, lang.value]);
  return (
    <div class="operate">
      <h1>{t("operate.title")}</h1>
      <nav ref={tabs} class="tabs" aria-label={t("operate.title")}>
        {TABS.map((one) => (
          <a key={one} href={`#/operate/${one}`} aria-current={one === tab ? "page" : undefined}>
            {t(TITLES[one])}
          </a>
        ))}
      </nav>
      {tab === "overview" && <OverviewTab />}
      {tab === "tasks" && <TasksTab />}
      {tab === "models" && <ModelsTab />}
      {tab === "workers" && <WorkersTab />}
      {tab === "people" && <PeopleTab />}
      {tab === "keys" && <KeysTab />}
      {tab === "usage" && <UsageTab />}
      {tab === "logs" && <LogsTab key={route.value.rest.join("/")} />}
      {tab === "audit" && <AuditTab />}
    </div>
  );
}
