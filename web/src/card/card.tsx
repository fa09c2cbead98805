// The live card of one task: queue, wake, load, steps, preview, video. It renders by its own task's signal alone.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { contentPath, downloadAll, previewPath } from "../api/media";
import type { Video } from "../api/schema";
import { explain, explainFailure } from "../api/words";
import { ago, duration, t } from "../i18n";
import { ended, type Task } from "../tasks/reducer";
import { lost } from "../tasks/socket";
import { cancel } from "../tasks/store";
import { useAct } from "../ui/act";
import { Button, IconButton, Menu, type MenuItem } from "../ui/controls";
import { copy } from "../ui/copyable";
import { Icon } from "../ui/icons";
import { calm } from "../ui/theme";
import { readSize, STILL } from "../views/create/rules";
import { again, dropDraft, withNewSeed, type Draft } from "../views/create/composer";
import { deleteLater } from "../views/library/deleting";
import { Star, TagsDialog } from "./labels";
import { canGoOn, goOn, useSettings } from "./reuse";
import { ShareDialog } from "./share";
import { curlOf, pythonOf } from "./snippets";
import { STATION_WORDS, STATIONS, stationOf } from "./stages";

const MAX_BLUR_PX = 7;

export function LiveCard({ task: source }: { task: Signal<Task> }) {
  const task = source.value;
  const video = task.video;
  const sharing = useSignal(false);
  const tagging = useSignal(false);
  if (video === null) return null;
  return (
    <article class={`card card-${task.status}`} aria-label={video.prompt} data-task={task.id}>
      <Picture task={task} video={video} />
      <div class="card-body">
        <div class="card-head">
          <p class="card-prompt" title={video.prompt}>{video.prompt}</p>
          <Star video={video} />
          <Menu label={t("card.more")} items={menuOf(task, video, () => (tagging.value = true))} />
        </div>
        <Rewritten video={video} />
        {video.unknown_words?.length ? <NotTaught words={video.unknown_words} /> : null}
        {ended(task.status) ? <Outcome task={task} video={video} /> : <Journey task={task} />}
        <Facts video={video} />
        <Actions task={task} video={video} onShare={() => (sharing.value = true)} />
      </div>
      {tagging.value && <TagsDialog video={video} onClose={() => (tagging.value = false)} />}
      {sharing.value && <ShareDialog id={task.id} onClose={() => (sharing.value = false)} />}
    </article>
  );
}

/** What a chat model made of the prompt, if it was to make it better. */
function Rewritten({ video }: { video: Video }) {
  if (video.original_prompt) return <p class="card-notice">{t("enhance.original", { prompt: video.original_prompt })}</p>;
  if (!video.enhance_error) return null;
  return (
    <p class="card-notice" title={video.enhance_error.message}>
      <Icon name="warn" size={16} />
      <span>{t("card.not_enhanced")}</span>
    </p>
  );
}

/** A tiny model draws the nearest thing that it knows: say which words it passed over. */
function NotTaught({ words }: { words: readonly string[] }) {
  return (
    <p class="card-notice">
      <Icon name="warn" size={16} />
      <span>{t("card.not_taught", { words: words.map((word) => `“${word}”`).join(" ") })}</span>
    </p>
  );
}

function Picture({ task, video }: { task: Task; video: Video }) {
  const { width, height } = readSize(video.size);
  const frame = { aspectRatio: `${width} / ${height}` };
  if (task.status === "completed")
    return (
      <div class="card-picture" style={frame}>
        {video.frames === STILL ? <img src={contentPath(task.id, "picture")} alt={video.prompt} loading="lazy" /> : <Player id={task.id} prompt={video.prompt} />}
      </div>
    );
  return (
    <div class="card-picture" style={frame}>
      {task.preview !== null && task.status !== "failed" && task.status !== "cancelled" ? (
        <Preview task={task} />
      ) : (
        <span class={`card-blank card-blank-${task.status}`}>
          {task.status === "failed" ? <Icon name="warn" size={32} /> : task.status === "cancelled" ? <Icon name="stop" size={32} /> : null}
        </span>
      )}
    </div>
  );
}

/** The last preview, less blurred with every step. */
function Preview({ task }: { task: Task }) {
  const preview = task.preview!;
  const done = task.steps > 0 ? Math.min(1, preview.step / task.steps) : 0.5;
  return <img class="card-preview" src={previewPath(task.id, preview.attempt, preview.step)} alt={t("card.preview")} style={{ filter: `blur(${((1 - done) * MAX_BLUR_PX).toFixed(1)}px)` }} />;
}

function Player({ id, prompt }: { id: string; prompt: string }) {
  const [visible, ref] = useVisible();
  const player = useRef<HTMLVideoElement>(null);
  useEffect(() => {
    if (visible && !calm()) void player.current?.play().catch(() => undefined);
    else player.current?.pause();
  }, [visible]);
  return (
    <div ref={ref} class="card-player">
      {visible ? (
        <video ref={player} src={contentPath(id, "video")} poster={contentPath(id, "thumbnail")} aria-label={prompt} controls loop muted playsInline preload="metadata" />
      ) : (
        <span class="card-blank card-blank-completed" />
      )}
    </div>
  );
}

/** Whether an element is near the screen. */
export function useVisible(): [boolean, { current: HTMLDivElement | null }] {
  const [visible, setVisible] = useState(false);
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = ref.current;
    if (element === null) return;
    const observer = new IntersectionObserver((entries) => setVisible(entries.at(-1)?.isIntersecting ?? false), { rootMargin: "300px" });
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [visible, ref];
}

/** The line with its stations, and in words where the task is on it. */
function Journey({ task }: { task: Task }) {
  const station = stationOf(task);
  const at = STATIONS.indexOf(station);
  return (
    <div class="journey">
      <p class="journey-words">
        {/* Read aloud when the station changes, not with each step. */}
        <strong aria-live="polite">{t(STATION_WORDS[station])}</strong>
        <span>{detailOf(task, station)}</span>
      </p>
      <ol class="line" aria-label={t("card.stages")}>
        {STATIONS.map((name, i) => (
          <li key={name} class={i < at ? "passed" : i === at ? "here" : ""} aria-current={i === at ? "step" : undefined}>
            <span class="sr-only">{t(STATION_WORDS[name])}</span>
          </li>
        ))}
      </ol>
      {task.status === "in_progress" && <progress max={100} value={task.progress} aria-label={t("card.progress")} />}
      <Lost />
      {task.attempt > 1 && <p class="journey-again">{t("card.attempt", { n: task.attempt })}</p>}
    </div>
  );
}

export function Lost() {
  if (!lost.value) return null;
  return (
    <p class="journey-again" role="status">
      {t("card.lost")}
    </p>
  );
}

function detailOf(task: Task, station: (typeof STATIONS)[number]): string {
  switch (station) {
    case "queued": {
      const before = task.queuePosition;
      const words = before === null ? "" : before === 0 ? t("card.next") : t("card.before", { n: before });
      return task.etaS === null ? words : `${words} · ${t("card.about", { time: duration(task.etaS) })}`;
    }
    case "waking":
      if (task.waitingFor?.cause != null) return t(`cause.${task.waitingFor.cause}`);
      return task.etaS === null ? t("card.waking") : t("card.about", { time: duration(task.etaS) });
    case "loading":
      return [task.loaded === null ? "" : t("card.loaded", { n: Math.floor(task.loaded * 100) }), task.etaS ? t("card.left", { time: duration(task.etaS) }) : ""].filter(Boolean).join(" · ");
    case "drawing":
      return t("card.step", { step: task.step, steps: task.steps }) + (task.etaS ? ` · ${t("card.left", { time: duration(task.etaS) })}` : "");
    default:
      return "";
  }
}

function Outcome({ task, video }: { task: Task; video: Video }) {
  if (task.status === "completed") {
    if (video.completed_at === null || video.started_at === null) return null;
    return <p class="card-took">{t("card.took", { time: duration(video.completed_at - video.started_at) })}</p>;
  }
  if (task.status === "cancelled") return <p class="card-took">{t("card.cancelled")}</p>;
  const { words, detail, reason } = explainFailure(task.error ?? video.error);
  return (
    <div class="failure">
      <p>
        <Icon name="warn" size={18} />
        <span>{words}</span>
      </p>
      {(detail || reason) && (
        <details>
          <summary>{t("card.reason")}</summary>
          {detail && <p>{detail}</p>}
          {reason && <p lang="en">{reason}</p>}
        </details>
      )}
    </div>
  );
}

function Facts({ video }: { video: Video }) {
  return (
    <p class="facts">
      <span>{video.model}</span>
      <span>{video.size.replace("x", " × ")}</span>
      <span>{video.frames === STILL ? t("card.still") : t("time.seconds", { n: Number(video.seconds) })}</span>
      <span title={t("form.seed")}>#{video.seed}</span>
      <span>{ago(video.created_at, Date.now() / 1000)}</span>
      {video.tags.map((tag) => (
        <span key={tag}>#{tag}</span>
      ))}
    </p>
  );
}

function menuOf(task: Task, video: Video, onTags: () => void): MenuItem[] {
  const goesOn: MenuItem = { icon: "play", text: t("card.go_on"), onSelect: () => void goOn(video) };
  const items: MenuItem[] = [
    ...(task.status === "completed" && canGoOn(video) ? [goesOn] : []),
    { icon: "retry", text: t("card.same_seed"), onSelect: () => again(video) },
    { icon: "dice", text: t("card.new_seed"), onSelect: () => withNewSeed(video) },
    { icon: "copy", text: t("card.copy_curl"), onSelect: () => void copy(curlOf(video, location.origin)) },
    { icon: "copy", text: t("card.copy_python"), onSelect: () => void copy(pythonOf(video, location.origin)) },
    { icon: "edit", text: t("labels.edit"), onSelect: onTags },
  ];
  if (ended(task.status)) items.push({ icon: "trash", text: t("delete"), danger: true, onSelect: () => deleteLater(task.id) });
  return items;
}

function Actions({ task, video, onShare }: { task: Task; video: Video; onShare: () => void }) {
  const { busy, act } = useAct();
  return (
    <div class="card-actions">
      {!ended(task.status) && (
        <Button icon="stop" busy={busy.value} onClick={() => void act(() => cancel(task.id))}>
          {t("cancel")}
        </Button>
      )}
      {task.status === "completed" && (
        <>
          <Button icon="download" onClick={() => downloadAll([video])}>
            {t("card.download")}
          </Button>
          <Button icon="share" kind="quiet" onClick={onShare}>
            {t("card.share")}
          </Button>
        </>
      )}
      {(task.status === "failed" || task.status === "cancelled") && (
        <Button icon="retry" onClick={() => again(video)}>
          {t("card.retry")}
        </Button>
      )}
      {ended(task.status) && (
        <Button icon="remix" kind="quiet" onClick={() => void useSettings(video)}>
          {t("card.use_settings")}
        </Button>
      )}
    </div>
  );
}

/** A submission that the gateway has not answered yet, or has refused. */
export function DraftCard({ draft }: { draft: Draft }) {
  const { width, height } = readSize(draft.size);
  return (
    <article class="card" aria-label={draft.prompt}>
      <div class="card-picture" style={{ aspectRatio: `${width} / ${height}` }}>
        <span class={`card-blank ${draft.problem ? "card-blank-failed" : ""}`}>{draft.problem ? <Icon name="warn" size={32} /> : null}</span>
      </div>
      <div class="card-body">
        <p class="card-prompt">{draft.prompt}</p>
        {draft.problem ? (
          <div class="failure" role="alert">
            <p>
              <Icon name="warn" size={18} />
              <span>{explain(draft.problem)}</span>
            </p>
          </div>
        ) : (
          <p class="journey-words">
            <strong>{t("card.sending")}</strong>
          </p>
        )}
        <p class="facts">
          <span>{draft.model}</span>
          <span>{draft.size.replace("x", " × ")}</span>
        </p>
        {draft.problem !== null && (
          <div class="card-actions">
            <Button icon="retry" onClick={() => void draft.send()}>
              {t("try_again")}
            </Button>
            <IconButton icon="close" label={t("card.dismiss")} onClick={() => dropDraft(draft.id)} />
          </div>
        )}
      </div>
    </article>
  );
}
