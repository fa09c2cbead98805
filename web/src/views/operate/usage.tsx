// Usage and what it cost, by day, tenant and model: as bars, as a table, as a file; and the budgets.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { duration, number, t, type Key } from "../../i18n";
import type { UsageList } from "../../api/schema";
import { Choice, Empty } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { Loaded, usePolled } from "../../ui/polled";
import { Table, type Column } from "../../ui/table";
import { barsOf } from "./bars";
import { Budgets, money } from "./budgets";

const DAY_MS = 86_400_000;
const SPANS = { week: 7, month: 30, quarter: 90 } as const;
type Span = keyof typeof SPANS;

export function UsageTab() {
  const span = useSignal<Span>("week");
  const start = () => new Date(Date.now() - (SPANS[span.value] - 1) * DAY_MS).toISOString().slice(0, 10);
  const polled = usePolled(() => call("GET /v1/usage", { query: { start: start() } }), 30_000, [span.value]);
  return (
    <>
      <section aria-labelledby="usage-title">
        <div class="row row-spread">
          <h2 id="usage-title">{t("operate.usage")}</h2>
          <div class="row">
            <Choice label={t("overview.span")} value={span.value} onChange={(value) => (span.value = value)} options={(Object.keys(SPANS) as Span[]).map((value) => ({ value, text: t(`usage.${value}`) }))} />
            <a class="button button-plain" href={`/v1/usage?format=csv&start=${start()}`} download={`usage-${start()}.csv`}>
              <Icon name="download" size={18} />
              CSV
            </a>
          </div>
        </div>
        <Loaded polled={polled}>{(used) => (used.data.length === 0 ? <Empty icon="operate" title={t("usage.none")} /> : <Figures used={used} />)}</Loaded>
      </section>
      <Budgets />
    </>
  );
}

function Figures({ used }: { used: UsageList }) {
  return (
    <>
      <Cost used={used} />
      <Rows rows={used.data} priced={used.priced} currency={used.currency} />
    </>
  );
}

const MOST_SERIES = 6;
const KINDS = ["model", "tenant"] as const;

/** A bar for each day: what it cost, or the time of GPUs where they have no price, or of rendering where there are none. */
function Cost({ used }: { used: UsageList }) {
  const by = useSignal<(typeof KINDS)[number]>("model");
  const unit = used.priced ? "cost" : used.data.some((row) => row.gpu_seconds!.held > 0) ? "gpu" : "render";
  const amountOf = (row: UsageList["data"][number]) => (unit === "cost" ? row.cost!.held : unit === "gpu" ? row.gpu_seconds!.held : row.render_seconds);
  const words = (amount: number) => (unit === "cost" ? money(amount, used.currency) : duration(amount));
  const bars = barsOf(used.data.map((row) => ({ day: row.day, series: row[by.value] || t("usage.nobody"), amount: amountOf(row) })), used.start, used.end, MOST_SERIES);
  const total = bars.series.reduce((sum, one) => sum + one.total, 0);
  return (
    <figure class="panel bars">
      <figcaption class="row row-spread">
        <span>
          {t(`usage.by_day_${unit}`)} <strong>{words(total)}</strong>
        </span>
        <Choice label={t("usage.by")} value={by.value} onChange={(value) => (by.value = value)} options={KINDS.map((value) => ({ value, text: t(value === "model" ? "form.model" : "operate.tenant") }))} />
      </figcaption>
      <div class="bars-box" role="img" aria-label={t("usage.bars", { total: words(total), n: bars.days.length })}>
        {bars.days.map((day, i) => {
          const sum = bars.series.reduce((all, one) => all + one.amounts[i]!, 0);
          return (
            <div key={day} class="bar" title={`${day}: ${words(sum)}`}>
              {bars.series.map((one, n) => one.amounts[i]! > 0 && <i key={n} data-series={n} style={{ height: `${(100 * one.amounts[i]!) / bars.highest}%` }} />)}
            </div>
          );
        })}
      </div>
      <p class="bars-ends" aria-hidden="true">
        <span>{bars.days[0]}</span>
        <span>{bars.days.at(-1)}</span>
      </p>
      <ul class="legend">
        {bars.series.map((one, n) => (
          <li key={n}>
            <i data-series={n} aria-hidden="true" />
            {one.name ?? t("usage.others")} <strong>{words(one.total)}</strong>
          </li>
        ))}
      </ul>
    </figure>
  );
}

type Row = UsageList["data"][number];

function Rows({ rows, priced, currency }: { rows: readonly Row[]; priced: boolean; currency: string }) {
  const amount = (head: Key, of: (row: Row) => number, words: (value: number) => string): Column<Row> => ({ head: t(head), kind: "num", cell: (row) => (of(row) === 0 ? "–" : words(of(row))), none: (row) => of(row) === 0 });
  const whole = (value: number) => number(value, 0);
  return (
    <Table about="usage-title" rows={rows.toReversed()} keyOf={(row) => `${row.day}/${row.tenant}/${row.model}`} columns={[
        { head: t("usage.day"), cell: (row) => row.day },
        { head: t("operate.tenant"), cell: (row) => row.tenant || t("usage.nobody") },
        { head: t("form.model"), cell: (row) => row.model },
        ...(priced ? [amount("usage.cost", (row) => row.cost!.held, (value) => money(value, currency))] : []),
        amount("usage.videos", (row) => row.videos, whole),
        amount("usage.seconds", (row) => row.video_seconds, duration),
        amount("usage.render", (row) => row.render_seconds, duration),
        amount("usage.requests", (row) => row.requests, whole),
        amount("usage.prompt_tokens", (row) => row.prompt_tokens, whole),
        amount("usage.completion_tokens", (row) => row.completion_tokens, whole),
      ]} />
  );
}
