// Library: all of the tenant's videos in a grid, with search, filters, scrubbing, and older ones as one scrolls.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { contentPath } from "../../api/media";
import { LiveCard, useVisible } from "../../card/card";
import { ago, duration, t } from "../../i18n";
import type { Status } from "../../tasks/events";
import type { Task } from "../../tasks/reducer";
import { listed, listing, more, order, statuses, taskOf } from "../../tasks/store";
import { Button, Dialog, Empty, Failed, IconButton, Spinner } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { go } from "../../ui/route";
import { readSize } from "../create/rules";
import { deleteLater, hidden } from "./deleting";
import { cellOf, cellsOf, matches } from "./search";

const STATUSES: readonly Status[] = ["completed", "in_progress", "queued", "failed", "cancelled"];

export function LibraryView() {
  const words = useSignal("");
  const model = useSignal("");
  const status = useSignal<Status | "">("");
  const opened = useSignal<string | null>(null);

  void statuses.value; // the grid is made anew when a task begins or ends; each tile follows its own task
  const tasks = order.value.map((id) => taskOf(id)).filter((task) => task !== undefined);
  const names = [...new Set(tasks.map((task) => task.peek().video!.model))].sort();
  const filter = { words: words.value, model: model.value, status: status.value };
  const found = tasks.filter((source) => {
    const task = source.peek();
    return !hidden.value.has(task.id) && matches(filter, { prompt: task.video!.prompt, model: task.video!.model, status: task.status });
  });
  const filtered = filter.words !== "" || filter.model !== "" || filter.status !== "";
  const current = opened.value === null ? undefined : taskOf(opened.value);

  return (
    <div class="library">
      <h1>{t("library.title")}</h1>
      <search class="filters">
        <label class="search">
          <span class="sr-only">{t("library.search")}</span>
          <Icon name="search" size={18} />
          <input type="search" placeholder={t("library.search")} value={words.value} onInput={(event) => (words.value = event.currentTarget.value)} />
        </label>
        <select aria-label={t("form.model")} value={model.value} onChange={(event) => (model.value = event.currentTarget.value)}>
          <option value="">{t("library.any_model")}</option>
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <select aria-label={t("library.state")} value={status.value} onChange={(event) => (status.value = event.currentTarget.value as Status | "")}>
          <option value="">{t("library.any_state")}</option>
          {STATUSES.map((one) => (
            <option key={one} value={one}>
              {t(`status.${one}`)}
            </option>
          ))}
        </select>
      </search>
      <p class="sr-only" role="status">
        {listed.value ? t("library.count", { n: found.length }) : ""}
      </p>
      {found.length > 0 && (
        <ul class="grid">
          {found.map((task) => (
            <Tile key={task.peek().id} source={task} onOpen={() => (opened.value = task.peek().id)} />
          ))}
        </ul>
      )}
      {found.length === 0 && listed.value && listing.value !== "loading" && <Nothing filtered={filtered} />}
      <More />
      {current !== undefined && (
        <Dialog title={t("library.one")} onClose={() => (opened.value = null)}>
          <LiveCard task={current} />
        </Dialog>
      )}
    </div>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty icon="search" title={t("library.none_found")} />;
  return (
    <Empty icon="library" title={t("library.empty")}>
      <Button kind="primary" icon="create" onClick={() => go("create")}>
        {t("library.make_first")}
      </Button>
    </Empty>
  );
}

/** The end of the grid: older videos are asked for as it comes near. */
function More() {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = ref.current;
    if (element === null) return;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && void more(), { rootMargin: "800px" });
    observer.observe(element);
    return () => observer.disconnect();
    // A page that leaves the end in sight asks for the next one.
  }, [order.value.length, listing.value === "idle"]);
  return (
    <div ref={ref} class="more">
      {listing.value === "loading" && (
        <>
          <Spinner />
          <span>{t("loading")}</span>
        </>
      )}
      {listing.value === "failed" && <Failed words={t("error.unreachable")} onRetry={() => void more()} />}
    </div>
  );
}

function Tile({ source, onOpen }: { source: Signal<Task>; onOpen: () => void }) {
  const task = source.value;
  const video = task.video!;
  const [visible, ref] = useVisible();
  const place = useSignal<number | null>(null);
  const done = task.status === "completed";
  const cells = cellsOf(video.frames);
  const { width, height } = readSize(video.size);
  const cell = place.value === null ? null : cellOf(place.value, cells);
  return (
    <li class="tile">
      <div
        ref={ref}
        class="tile-picture"
        style={{ aspectRatio: `${width} / ${height}` }}
        onPointerMove={(event) => {
          if (event.pointerType === "touch") return;
          const box = event.currentTarget.getBoundingClientRect();
          place.value = (event.clientX - box.left) / box.width;
        }}
        onPointerLeave={() => (place.value = null)}
      >
        {done && visible ? <img src={contentPath(task.id, "thumbnail")} alt="" draggable={false} /> : <span class={`card-blank card-blank-${task.status}`}>{task.status === "failed" && <Icon name="warn" />}</span>}
        {done && cell !== null && (
          <span class="scrub">
            <img src={contentPath(task.id, "spritesheet")} alt="" style={{ width: `${cells.columns * 100}%`, height: `${cells.rows * 100}%`, transform: `translate(${(-100 * cell.column) / cells.columns}%, ${(-100 * cell.row) / cells.rows}%)` }} />
          </span>
        )}
        {cell !== null && done && <span class="scrub-bar" style={{ width: `${((cell.index + 1) / cells.count) * 100}%` }} />}
        {!done && <span class={`badge badge-${task.status}`}>{t(`status.${task.status}`)}</span>}
      </div>
      <button
        type="button"
        class="tile-open"
        aria-describedby={done ? "scrub-hint" : undefined}
        onClick={onOpen}
        onBlur={() => (place.value = null)}
        onKeyDown={(event) => {
          const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (by === undefined || !done) return;
          event.preventDefault();
          const at = place.value === null ? (by > 0 ? 0 : cells.count - 1) : cellOf(place.value, cells).index + by;
          place.value = ((at + cells.count) % cells.count) / cells.count + 0.001;
        }}
      >
        <span class="tile-prompt">{video.prompt}</span>
        <span class="facts">
          <span>{video.model}</span>
          <span>{duration(Number(video.seconds))}</span>
          <span>{ago(video.created_at, Date.now() / 1000)}</span>
        </span>
      </button>
      <IconButton class="tile-delete" icon="trash" label={t("library.delete", { prompt: video.prompt })} onClick={() => deleteLater(task.id)} />
    </li>
  );
}
