// Who did what to keys, people, models, workers, budgets and tasks; newest first, older ones on demand.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../../api/http";
import type { AuditShown } from "../../api/schema";
import { explain } from "../../api/words";
import { ago, t } from "../../i18n";
import { Button, Empty, Failed } from "../../ui/controls";
import { SearchField } from "../../ui/forms";
import { Table } from "../../ui/table";

const PAGE = 50;
const TYPED_MS = 300;

export function AuditTab() {
  const words = useSignal("");
  const entries = useSignal<readonly AuditShown[] | null>(null);
  const more = useSignal(false);
  const busy = useSignal(false);
  const problem = useSignal<unknown>(null);
  const read = async (query: string, before: AuditShown | null, over: () => boolean) => {
    busy.value = true;
    try {
      const page = await call("GET /v1/audit", { query: { limit: PAGE, query, before: before?.id ?? null } });
      if (over()) return;
      entries.value = before === null ? page.data : [...(entries.peek() ?? []), ...page.data];
      more.value = page.has_more;
      problem.value = null;
    } catch (err) {
      if (!over()) problem.value = err;
    }
    busy.value = false;
  };
  useEffect(() => {
    let over = false;
    const timer = window.setTimeout(() => void read(words.peek().trim(), null, () => over), entries.peek() === null ? 0 : TYPED_MS);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [words.value]);
  return (
    <section aria-labelledby="audit-title">
      <h2 id="audit-title">{t("operate.audit")}</h2>
      <SearchField label={t("audit.search")} maxLength={100} value={words.value} onInput={(typed) => (words.value = typed)} />
      {problem.value !== null && <Failed words={explain(problem.value)} onRetry={() => void read(words.value.trim(), null, () => false)} />}
      {entries.value?.length === 0 && <Empty icon="search" title={t("audit.none")} />}
      {entries.value !== null && entries.value.length > 0 && (
        <Table about="audit-title" rows={entries.value} keyOf={(entry) => entry.id} columns={[
            { head: t("audit.action"), cell: (entry) => <code>{entry.action}</code> },
            {
              head: t("audit.target"),
              kind: "long",
              cell: (entry) => (
                <>
                  {entry.target}
                  <small class="quiet block">
                    {Object.entries(entry.detail)
                      .map(([name, value]) => `${name}: ${value}`)
                      .join(" · ")}
                  </small>
                </>
              ),
            },
            {
              head: t("audit.actor"),
              kind: "long",
              cell: (entry) => (
                <>
                  {entry.actor}
                  <small class="quiet block">{entry.address}</small>
                </>
              ),
            },
            {
              head: t("audit.when"),
              cell: (entry) => (
                <time dateTime={new Date(entry.at * 1000).toISOString()} title={new Date(entry.at * 1000).toISOString()}>
                  {ago(entry.at, Date.now() / 1000)}
                </time>
              ),
            },
          ]} />
      )}
      {more.value && (
        <div class="row row-end">
          <Button busy={busy.value} onClick={() => void read(words.value.trim(), entries.value?.at(-1) ?? null, () => false)}>
            {t("audit.older")}
          </Button>
        </div>
      )}
    </section>
  );
}
