// Operate: what the service does, for admins. One tab a subject; each asks for its own figures while it is shown.
import { t, type Key } from "../../i18n";
import { route } from "../../ui/route";
import { KeysTab } from "./keys";
import { ModelsTab } from "./models";
import { OverviewTab } from "./overview";
import { PeopleTab } from "./people";
import { UsageTab } from "./usage";
import { WorkersTab } from "./workers";

const TABS = ["overview", "models", "workers", "people", "keys", "usage"] as const;
type Tab = (typeof TABS)[number];
const TITLES: Record<Tab, Key> = { overview: "operate.overview", models: "operate.models", workers: "operate.workers", people: "operate.people", keys: "operate.keys", usage: "operate.usage" };

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
      {tab === "people" && <PeopleTab />}
      {tab === "keys" && <KeysTab />}
      {tab === "usage" && <UsageTab />}
    </div>
  );
}
