// Everybody's unfinished tasks in the order in which they are served, each with its log and a way to stop it.
import { call } from "../../api/http";
import type { QueuedShown } from "../../api/schema";
import { ago, duration, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Empty } from "../../ui/controls";
import { Loaded, usePolled } from "../../ui/polled";
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
              <div class="panel table-box" tabIndex={0} role="group" aria-labelledby="tasks-title">
                <table>
                  <thead>
                    <tr>
                      <th scope="col">{t("tasks.place")}</th>
                      <th scope="col">{t("form.model")}</th>
                      <th scope="col">{t("operate.tenant")}</th>
                      <th scope="col">{t("tasks.what")}</th>
                      <th scope="col" class="num">{t("tasks.asked")}</th>
                      <th scope="col" class="num">{t("tasks.left")}</th>
                      <th scope="col">
                        <span class="sr-only">{t("cancel")}</span>
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {queue.data.map((task) => (
                      <Row key={task.id} task={task} onDone={polled.again} />
                    ))}
                  </tbody>
                </table>
              </div>
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

function Row({ task, onDone }: { task: QueuedShown; onDone: () => void }) {
  const { busy, act } = useAct();
  const stop = () =>
    act(async () => {
      await call("POST /v1/queues/tasks/{video_id}/cancel", { path: { video_id: task.id } });
      onDone();
    });
  const place = task.status === "in_progress" ? `${task.progress} %` : task.queue_position === 0 ? t("tasks.next") : task.queue_position === null ? "–" : String(task.queue_position + 1);
  return (
    <tr>
      <th scope="row">
        <span class="state" data-state={task.status === "in_progress" ? "ready" : "asleep"}>
          {place}
        </span>
        <small class="quiet block">
          <a href={`#/operate/logs/task/${encodeURIComponent(task.id)}`}>{task.id}</a>
        </small>
      </th>
      <td data-label={t("form.model")}>{task.model}</td>
      <td data-label={t("operate.tenant")}>
        <span>
          {task.tenant}
          {task.priority !== "normal" && <small class="quiet block">{t(`priority.${task.priority}`)}</small>}
        </span>
      </td>
      <td class="long" data-label={t("tasks.what")}>
        <span>
          {task.size.replace("x", " × ")} · {task.frames === STILL ? t("card.still") : t("presets.frames", { n: task.frames })}
          {task.attempt > 1 && <small class="quiet block">{t("card.attempt", { n: task.attempt })}</small>}
        </span>
      </td>
      <td class="num" data-label={t("tasks.asked")}>{ago(task.created_at, Date.now() / 1000)}</td>
      <td class="num" data-label={t("tasks.left")}>{task.eta_s === null ? "–" : duration(task.eta_s)}</td>
      <td class="num table-act">
        <Button kind="danger" busy={busy.value} aria-label={t("tasks.stop", { id: task.id })} onClick={() => void stop()}>
          {t("cancel")}
        </Button>
      </td>
    </tr>
  );
}
