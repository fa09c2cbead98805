// What the parts on the gateway's machine have written: the last lines, of one part or about one task.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call } from "../../api/http";
import type { LogLineShown } from "../../api/schema";
import { t } from "../../i18n";
import { Empty } from "../../ui/controls";
import { SearchField } from "../../ui/forms";
import { Loaded, usePolled } from "../../ui/polled";
import { route } from "../../ui/route";

const LINES = 300;
const TYPED_MS = 400;

export function LogsTab() {
  const [, kind, name] = route.value.rest;
  const part = useSignal("");
  const task = useSignal(kind === "task" ? (name ?? "") : "");
  const asked = useSignal(task.peek());
  useEffect(() => {
    const timer = window.setTimeout(() => (asked.value = task.value), TYPED_MS);
    return () => window.clearTimeout(timer);
  }, [task.value]);
  const polled = usePolled(() => call("GET /v1/logs", { query: { part: part.value || null, task: asked.value.trim() || null, lines: LINES } }), 3_000, [part.value, asked.value]);
  return (
    <section aria-labelledby="logs-title">
      <h2 id="logs-title">{t("logs.title")}</h2>
      <search class="filters">
        <SearchField label={t("logs.task")} maxLength={128} value={task.value} onInput={(words) => (task.value = words)} />
        <select aria-label={t("logs.part")} value={part.value} onChange={(event) => (part.value = event.currentTarget.value)}>
          <option value="">{t("logs.any_part")}</option>
          {polled.value?.parts.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </search>
      <Loaded polled={polled}>
        {(logs) =>
          logs.parts.length === 0 ? (
            <Empty icon="machine" title={t("logs.elsewhere")}>
              <p>{t("logs.elsewhere_hint")}</p>
            </Empty>
          ) : logs.data.length === 0 ? (
            <Empty icon="search" title={t("logs.none")} />
          ) : (
            <Lines lines={logs.data} />
          )
        }
      </Loaded>
      <p class="quiet">{t("logs.about")}</p>
    </section>
  );
}

function Lines({ lines }: { lines: readonly LogLineShown[] }) {
  const box = useRef<HTMLDivElement>(null);
  const followed = useRef(true);
  useEffect(() => {
    if (followed.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  return (
    <div
      ref={box}
      class="panel log"
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-labelledby="logs-title"
      lang="en"
      onScroll={(event) => {
        const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
        followed.current = scrollHeight - scrollTop - clientHeight < 40;
      }}
    >
      {lines.map((line, i) => (
        <p key={`${line.at}/${i}`} data-level={line.level}>
          <time dateTime={line.at}>{line.at.slice(11, 19)}</time> <b>{line.part}</b> {line.event}{" "}
          <span>
            {Object.entries(line.fields)
              .map(([name, value]) => `${name}=${value}`)
              .join(" ")}
          </span>
        </p>
      ))}
    </div>
  );
}
