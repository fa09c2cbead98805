// Usage by day, tenant and model.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { duration, number, t } from "../../i18n";
import { Choice, Empty } from "../../ui/controls";
import { Loaded, usePolled } from "../../ui/polled";

const DAY_MS = 86_400_000;
const SPANS = { week: 7, month: 30, quarter: 90 } as const;
type Span = keyof typeof SPANS;

export function UsageTab() {
  const span = useSignal<Span>("week");
  const start = () => new Date(Date.now() - (SPANS[span.value] - 1) * DAY_MS).toISOString().slice(0, 10);
  const polled = usePolled(async () => (await call("GET /v1/usage", { query: { start: start() } })).data, 30_000, [span.value]);
  return (
    <section aria-labelledby="usage-title">
      <div class="row row-spread">
        <h2 id="usage-title">{t("operate.usage")}</h2>
        <Choice label={t("overview.span")} value={span.value} onChange={(value) => (span.value = value)} options={(Object.keys(SPANS) as Span[]).map((value) => ({ value, text: t(`usage.${value}`) }))} />
      </div>
      <Loaded polled={polled}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty icon="operate" title={t("usage.none")} />
          ) : (
            <div class="panel table-box" tabIndex={0} role="group" aria-labelledby="usage-title">
              <table>
                <thead>
                  <tr>
                    <th scope="col">{t("usage.day")}</th>
                    <th scope="col">{t("operate.tenant")}</th>
                    <th scope="col">{t("form.model")}</th>
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
                      <td data-label={t("operate.tenant")}>{row.tenant}</td>
                      <td data-label={t("form.model")}>{row.model}</td>
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
          )
        }
      </Loaded>
    </section>
  );
}

function Amount({ label, value, words }: { label: string; value: number; words: string }) {
  return (
    <td class="num" data-label={label} data-none={value === 0 || undefined}>
      {value === 0 ? "–" : words}
    </td>
  );
}
