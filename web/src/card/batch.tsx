// Videos that were asked for together: one card that unfolds.
import { useSignal, type Signal } from "@preact/signals";
import { contentPath, downloadAll, previewPath } from "../api/media";
import { explain } from "../api/words";
import { t } from "../i18n";
import { ended, type Task } from "../tasks/reducer";
import { cancel, statuses } from "../tasks/store";
import { Button, Menu } from "../ui/controls";
import { Icon } from "../ui/icons";
import { say } from "../ui/toasts";
import { deleteLater } from "../views/library/deleting";
import { readSize } from "../views/create/rules";
import { LiveCard, Lost } from "./card";
import { CompareDialog } from "./compare";
import { useSettings } from "./reuse";

/** `together` are two or more; they are shown by their seeds. */
export function BatchCard({ together }: { together: readonly Signal<Task>[] }) {
  const tasks = [...together].sort((a, b) => a.peek().video!.seed - b.peek().video!.seed);
  const open = useSignal(false);
  const comparing = useSignal(false);
  const standing = statuses.value; // the card is made anew when one of them begins or ends; each picture follows its own
  const all = tasks.map((source) => source.peek());
  const video = all[0]!.video!;
  const done = all.filter((task) => standing.get(task.id) === "completed");
  const left = all.filter((task) => !ended(standing.get(task.id) ?? task.status));
  const items = [
    { icon: "remix" as const, text: t("card.use_settings"), onSelect: () => void useSettings(video) },
    ...(left.length === 0 ? [{ icon: "trash" as const, text: t("batch.delete"), danger: true, onSelect: () => deleteLater(...all.map((task) => task.id)) }] : []),
  ];
  return (
    <div class="batch">
      <article class="card" aria-label={video.prompt} data-batch={video.batch}>
        <div class={`batch-pictures batch-of-${Math.min(all.length, 8)}`}>
          {tasks.map((source) => (
            <BatchPicture key={source.peek().id} source={source} />
          ))}
        </div>
        <div class="card-body">
          <div class="card-head">
            <p class="card-prompt" title={video.prompt}>{video.prompt}</p>
            <Menu label={t("card.more")} items={items} />
          </div>
          <p class="card-took" aria-live="polite">{t("batch.done", { n: done.length, of: all.length })}</p>
          {left.length > 0 && <Lost />}
          <p class="facts">
            <span>{video.model}</span>
            <span>{video.size.replace("x", " × ")}</span>
            <span>{t("batch.seeds", { first: String(video.seed), last: String(all.at(-1)!.video!.seed) })}</span>
          </p>
          <div class="card-actions">
            <Button icon="library" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
              {t(open.value ? "batch.fold" : "batch.unfold")}
            </Button>
            {left.length > 0 && (
              <Button icon="stop" onClick={() => void cancelAll(left)}>
                {t("batch.cancel")}
              </Button>
            )}
            {done.length > 1 && (
              <Button icon="compare" kind="quiet" onClick={() => (comparing.value = true)}>
                {t("compare.open")}
              </Button>
            )}
            {done.length > 0 && left.length === 0 && (
              <Button icon="download" kind="quiet" onClick={() => downloadAll(done.map((task) => task.video!))}>
                {t("card.download")}
              </Button>
            )}
          </div>
        </div>
      </article>
      {open.value && (
        <div class="batch-all">
          {tasks.map((source) => (
            <LiveCard key={source.peek().id} task={source} />
          ))}
        </div>
      )}
      {comparing.value && <CompareDialog ids={done.map((task) => task.id)} onClose={() => (comparing.value = false)} />}
    </div>
  );
}

/** Stops several; of those that cannot be stopped, one says why. */
export async function cancelAll(tasks: readonly Task[]): Promise<void> {
  const answers = await Promise.allSettled(tasks.map((task) => cancel(task.id)));
  const refused = answers.find((answer) => answer.status === "rejected");
  if (refused) say(explain(refused.reason), "bad");
}

function BatchPicture({ source }: { source: Signal<Task> }) {
  const task = source.value;
  const { width, height } = readSize(task.video!.size);
  const shown = task.status === "completed" ? contentPath(task.id, "thumbnail") : task.preview !== null && !ended(task.status) ? previewPath(task.id, task.preview.attempt, task.preview.step) : null;
  return (
    <span class="batch-picture" style={{ aspectRatio: `${width} / ${height}` }}>
      {shown !== null ? <img src={shown} alt="" /> : <span class={`card-blank card-blank-${task.status}`}>{task.status === "failed" && <Icon name="warn" />}</span>}
      {!ended(task.status) && <progress max={100} value={task.progress} aria-label={t("card.progress")} />}
    </span>
  );
}
