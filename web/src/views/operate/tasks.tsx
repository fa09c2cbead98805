// Everybody's unfinished tasks in the order in which they are served, each with its log and a way to stop it.
import { call } from "../../api/http";
import type { QueuedShown } from "../../api/schema";
import { ago, duration, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Empty } from "../../ui/controls";
import { Loaded, usePolled } from "../../ui/polled";
import { Table } from "../../ui/table";
import { STILL } from "../create/rules";

export function TasksTab() {
  const polled = usePolled(() => call("GET /v1/queues/tasks", {}), 3_000);
  return (
    <section aria-labelledby="tasks-title">
      <h2 id="tasks-title">{t("tasks.title")}</h2>
      <Loaded polled={polled}>
        {(queue) =>
          queue.data.length === 0 ? (
            <Empty icon="check" title={t("overview.no_queue")} />
          ) : (
            <>
              <Table about="tasks-title" rows={queue.data} keyOf={(task) => task.id} columns={[
                  {
                    head: t("tasks.place"),
                    cell: (task) => (
                      <>
                        <span class="state" data-state={task.status === "in_progress" ? "ready" : "asleep"}>
                          {placeOf(task)}
                        </span>
                        <small class="quiet block">
                          <a href={`#/operate/logs/task/${encodeURIComponent(task.id)}`}>{task.id}</a>
                        </small>
                      </>
                    ),
                  },
                  { head: t("form.model"), cell: (task) => task.model },
                  {
                    head: t("operate.tenant"),
                    cell: (task) => (
                      <>
                        {task.tenant}
                        {task.priority !== "normal" && <small class="quiet block">{t(`priority.${task.priority}`)}</small>}
                      </>
                    ),
                  },
                  {
                    head: t("tasks.what"),
                    kind: "long",
                    cell: (task) => (
                      <>
                        {task.size.replace("x", " × ")} · {task.frames === STILL ? t("card.still") : t("presets.frames", { n: task.frames })}
                        {task.attempt > 1 && <small class="quiet block">{t("card.attempt", { n: task.attempt })}</small>}
                      </>
                    ),
                  },
                  { head: t("tasks.asked"), kind: "num", cell: (task) => ago(task.created_at, Date.now() / 1000) },
                  { head: t("tasks.left"), kind: "num", cell: (task) => (task.eta_s === null ? "–" : duration(task.eta_s)) },
                  { head: t("cancel"), kind: "act", cell: (task) => <Stop task={task} onDone={polled.again} /> },
                ]} />
              <Hidden shown={queue.data.length} all={Object.values(queue.unfinished).reduce((sum, n) => sum + n, 0)} />
            </>
          )
        }
      </Loaded>
    </section>
  );
}

function Hidden({ shown, all }: { shown: number; all: number }) {
  return all > shown ? <p class="quiet">{t("tasks.more", { n: all - shown })}</p> : null;
}

function placeOf(task: QueuedShown): string {
  if (task.status === "in_progress") return `${task.progress} %`;
  if (task.queue_position === 0) return t("tasks.next");
  return task.queue_position === null ? "–" : String(task.queue_position + 1);
}

function Stop({ task, onDone }: { task: QueuedShown; onDone: () => void }) {
  const { busy, act } = useAct();
  const stop = async () => {
    await call("POST /v1/queues/tasks/{video_id}/cancel", { path: { video_id: task.id } });
    onDone();
  };
  return (
    <Button kind="danger" busy={busy.value} aria-label={t("tasks.stop", { id: task.id })} onClick={() => void act(stop)}>
      {t("cancel")}
    </Button>
  );
}
