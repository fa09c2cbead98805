// Usage and what it cost, by day, tenant and model: as bars, as a table, as a file; and the budgets.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { duration, number, t } from "../../i18n";
import type { UsageList } from "../../api/schema";
import { Choice, Empty } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { Loaded, usePolled } from "../../ui/polled";
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

function Rows({ rows, priced, currency }: { rows: UsageList["data"]; priced: boolean; currency: string }) {
  return (
    <div class="panel table-box" tabIndex={0} role="group" aria-labelledby="usage-title">
      <table>
        <thead>
          <tr>
            <th scope="col">{t("usage.day")}</th>
            <th scope="col">{t("operate.tenant")}</th>
            <th scope="col">{t("form.model")}</th>
            {priced && <th scope="col" class="num">{t("usage.cost")}</th>}
            <th scope="col" class="num">{t("usage.videos")}</th>
            <th scope="col" class="num">{t("usage.seconds")}</th>
            <th scope="col" class="num">{t("usage.render")}</th>
            <th scope="col" class="num">{t("usage.requests")}</th>
            <th scope="col" class="num">{t("usage.prompt_tokens")}</th>
            <th scope="col" class="num">{t("usage.completion_tokens")}</th>
          </tr>
        </thead>
        <tbody>
          {rows.toReversed().map((row) => (
            <tr key={`${row.day}/${row.tenant}/${row.model}`}>
              <th scope="row">{row.day}</th>
              <td data-label={t("operate.tenant")}>{row.tenant || t("usage.nobody")}</td>
              <td data-label={t("form.model")}>{row.model}</td>
              {priced && <Amount label={t("usage.cost")} value={row.cost!.held} words={money(row.cost!.held, currency)} />}
              <Amount label={t("usage.videos")} value={row.videos} words={number(row.videos, 0)} />
              <Amount label={t("usage.seconds")} value={row.video_seconds} words={duration(row.video_seconds)} />
              <Amount label={t("usage.render")} value={row.render_seconds} words={duration(row.render_seconds)} />
              <Amount label={t("usage.requests")} value={row.requests} words={number(row.requests, 0)} />
              <Amount label={t("usage.prompt_tokens")} value={row.prompt_tokens} words={number(row.prompt_tokens, 0)} />
              <Amount label={t("usage.completion_tokens")} value={row.completion_tokens} words={number(row.completion_tokens, 0)} />
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Amount({ label, value, words }: { label: string; value: number; words: string }) {
  return (
    <td class="num" data-label={label} data-none={value === 0 || undefined}>
      {value === 0 ? "–" : words}
    </td>
  );
}
