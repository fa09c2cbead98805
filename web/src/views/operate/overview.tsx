// Queues now, and plots of the last hours.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { models } from "../../api/models";
import type { HistoryColumns, QueueList } from "../../api/schema";
import { duration, t, type Key } from "../../i18n";
import { Choice } from "../../ui/controls";
import { Loaded, usePolled, type Polled } from "../../ui/polled";
import { Table } from "../../ui/table";
import { Plot, type Line } from "./plot";

const SPANS = { hour: 60, hours6: 360, day: 1440 } as const;
type Span = keyof typeof SPANS;

const PLOTS: readonly { title: Key; unit: "count" | "seconds"; lines: readonly { column: keyof HistoryColumns; name: Key; colour: Line["colour"] }[] }[] = [
  { title: "plot.queue", unit: "count", lines: [{ column: "queue_length", name: "plot.queue", colour: "one" }] },
  { title: "plot.gpus", unit: "count", lines: [{ column: "gpus_busy", name: "plot.busy", colour: "one" }, { column: "gpus_idle", name: "plot.idle", colour: "two" }] },
  { title: "plot.step", unit: "seconds", lines: [{ column: "step_seconds", name: "plot.step", colour: "one" }] },
  { title: "plot.first_token", unit: "seconds", lines: [{ column: "first_token_seconds", name: "plot.first_token", colour: "one" }] },
  { title: "plot.wakes", unit: "count", lines: [{ column: "wakes", name: "plot.wakes", colour: "one" }] },
];

export function OverviewTab() {
  const queues = usePolled(() => call("GET /v1/queues", {}), 4_000);
  return (
    <>
      <Standing queues={queues} />
      <QueueTable polled={queues} />
      <Plots />
    </>
  );
}

function Standing({ queues }: { queues: Polled<QueueList> }) {
  const all = models.value ?? [];
  const awake = all.filter((model) => model.state === "ready").length;
  const failed = all.filter((model) => model.state === "failed").length;
  const rows = queues.value?.data ?? null;
  const figures: [Key, string][] = [
    ["overview.awake", `${awake} / ${all.length}`],
    ["overview.failed", String(failed)],
  ];
  if (rows !== null) {
    figures.push(["overview.waiting", String(rows.reduce((sum, row) => sum + row.waiting, 0))]);
    figures.push(["overview.running", String(rows.reduce((sum, row) => sum + row.running, 0))]);
  }
  return (
    <dl class="tiles">
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{t(name)}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function QueueTable({ polled }: { polled: Polled<QueueList> }) {
  return (
    <section class="panel" aria-labelledby="queues-title">
      <h2 id="queues-title">{t("overview.queues")}</h2>
      <Loaded polled={polled}>
          {(queues) =>
            queues.data.length === 0 ? (
              <p class="quiet">{t("overview.no_queue")}</p>
            ) : (
              <Table inPanel about="queues-title" rows={queues.data} keyOf={(row) => `${row.model}/${row.tenant}`} columns={[
                  { head: t("form.model"), cell: (row) => row.model },
                  { head: t("operate.tenant"), cell: (row) => row.tenant },
                  { head: t("overview.waiting"), kind: "num", cell: (row) => row.waiting },
                  { head: t("overview.running"), kind: "num", cell: (row) => row.running },
                  { head: t("overview.oldest"), kind: "num", cell: (row) => (row.waiting > 0 ? duration(row.oldest_s) : "–"), none: (row) => row.waiting === 0 },
                ]} />
            )
          }
      </Loaded>
    </section>
  );
}

function Plots() {
  const span = useSignal<Span>("hour");
  const polled = usePolled(() => call("GET /v1/history", { query: { minutes: SPANS[span.value] } }), 15_000, [span.value]);
  return (
    <section aria-labelledby="plots-title">
      <div class="row row-spread">
        <h2 id="plots-title">{t("overview.history")}</h2>
        <Choice label={t("overview.span")} value={span.value} onChange={(value) => (span.value = value)} options={(Object.keys(SPANS) as Span[]).map((value) => ({ value, text: t(`overview.${value}`) }))} />
      </div>
      <Loaded polled={polled}>
          {(history) => (
            <div class="plots">
              {PLOTS.map((plot) => (
                <Plot key={plot.title} title={t(plot.title)} unit={plot.unit} at={history.at} lines={plot.lines.map((line) => ({ name: t(line.name), colour: line.colour, values: history.columns[line.column] }))} />
              ))}
            </div>
          )}
      </Loaded>
    </section>
  );
}
