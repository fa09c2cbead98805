// Library: all of the tenant's videos in a grid, with search, filters, scrubbing, and older ones as one scrolls.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { contentPath, downloadAll } from "../../api/media";
import { cancelAll } from "../../card/batch";
import { LiveCard, useVisible } from "../../card/card";
import { CompareDialog } from "../../card/compare";
import { Star } from "../../card/labels";
import { ago, duration, t } from "../../i18n";
import type { Status } from "../../tasks/events";
import { ended, type Task } from "../../tasks/reducer";
import { isFiltered, matches, NO_FILTER, readWords, useSearch, type Filter } from "../../tasks/search";
import { listed, order, statuses, taskOf, type Listing } from "../../tasks/store";
import { Button, Dialog, Empty, Failed, IconButton, Spinner } from "../../ui/controls";
import { SearchField } from "../../ui/forms";
import { Icon } from "../../ui/icons";
import { go } from "../../ui/route";
import { readSize, STILL } from "../create/rules";
import { deleteLater, hidden } from "./deleting";
import { cellOf, cellsOf } from "./sheet";

const STATUSES: readonly Status[] = ["completed", "in_progress", "queued", "failed", "cancelled"];

export function LibraryView() {
  const filter = useSignal<Filter>(NO_FILTER);
  const set = (fields: Partial<Filter>) => (filter.value = { ...filter.value, ...fields });
  const search = useSearch(filter.value);
  const opened = useSignal<string | null>(null);
  const chosen = useSignal<ReadonlySet<string>>(new Set());
  const choose = (id: string, on: boolean) => {
    const next = new Set(chosen.value);
    if (on) next.add(id);
    else next.delete(id);
    chosen.value = next;
  };

  void statuses.value; // the grid is made anew when a task begins, ends or is labelled; each tile follows its own task
  const tasks = order.value.map((id) => taskOf(id)).filter((task) => task !== undefined);
  const names = [...new Set(tasks.map((task) => task.peek().video!.model))].sort();
  const found = tasks.filter((source) => {
    const task = source.peek();
    return !hidden.value.has(task.id) && matches(filter.value, { ...task.video!, status: task.status });
  });
  const current = opened.value === null ? undefined : taskOf(opened.value);

  return (
    <div class="library">
      <h1>{t("library.title")}</h1>
      <search class="filters">
        <SearchField label={t("library.search")} maxLength={200} value={filter.value.words} onInput={(words) => set({ words })} />
        <select aria-label={t("form.model")} value={filter.value.model} onChange={(event) => set({ model: event.currentTarget.value })}>
          <option value="">{t("library.any_model")}</option>
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
        <select aria-label={t("library.state")} value={filter.value.status} onChange={(event) => set({ status: event.currentTarget.value as Status | "" })}>
          <option value="">{t("library.any_state")}</option>
          {STATUSES.map((one) => (
            <option key={one} value={one}>
              {t(`status.${one}`)}
            </option>
          ))}
        </select>
        <Button icon="star" aria-pressed={filter.value.favourite} onClick={() => set({ favourite: !filter.value.favourite })}>
          {t("library.favourites")}
        </Button>
        <Tags tasks={tasks} filter={filter.value} onChoose={(words) => set({ words })} />
      </search>
      <p class="sr-only" role="status">
        {listed.value ? t("library.count", { n: found.length }) : ""}
      </p>
      {found.length > 0 && (
        <ul class={chosen.value.size > 0 ? "grid choosing" : "grid"}>
          {found.map((task) => (
            <Tile key={task.peek().id} source={task} chosen={chosen.value.has(task.peek().id)} onChoose={(on) => choose(task.peek().id, on)} onOpen={() => (opened.value = task.peek().id)} />
          ))}
        </ul>
      )}
      {found.length === 0 && listed.value && search.state.value === "all" && <Nothing filtered={isFiltered(filter.value)} />}
      <More state={search.state.value} onMore={() => void search.next()} />
      {chosen.value.size > 0 && <Chosen tasks={found.map((task) => task.peek()).filter((task) => chosen.value.has(task.id))} onDone={() => (chosen.value = new Set())} />}
      {current !== undefined && (
        <Dialog title={t("library.one")} onClose={() => (opened.value = null)}>
          <LiveCard task={current} />
        </Dialog>
      )}
    </div>
  );
}

/** What can be done with several at once. */
function Chosen({ tasks, onDone }: { tasks: readonly Task[]; onDone: () => void }) {
  const comparing = useSignal(false);
  const ready = tasks.filter((task) => task.status === "completed").map((task) => task.video!);
  const left = tasks.filter((task) => !ended(task.status));
  const gone = tasks.filter((task) => ended(task.status));
  return (
    <div class="chosen" role="toolbar" aria-label={t("library.chosen", { n: tasks.length })}>
      <IconButton icon="close" label={t("library.choose_none")} onClick={onDone} />
      <strong role="status">{t("library.chosen", { n: tasks.length })}</strong>
      <span class="spread" />
      {ready.length > 1 && (
        <Button icon="compare" onClick={() => (comparing.value = true)}>
          {t("compare.open")}
        </Button>
      )}
      {ready.length > 0 && (
        <Button icon="download" onClick={() => downloadAll(ready)}>
          {t("card.download")}
        </Button>
      )}
      {left.length > 0 && (
        <Button icon="stop" onClick={() => void cancelAll(left)}>
          {t("cancel")}
        </Button>
      )}
      {gone.length > 0 && (
        <Button
          icon="trash"
          kind="danger"
          onClick={() => {
            deleteLater(...gone.map((task) => task.id));
            onDone();
          }}
        >
          {t("delete")}
        </Button>
      )}
      {comparing.value && <CompareDialog ids={ready.map((video) => video.id)} onClose={() => (comparing.value = false)} />}
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

const MOST_TAGS = 12;

/** The tags of the videos that are there; one of them at a time. */
function Tags({ tasks, filter, onChoose }: { tasks: readonly Signal<Task>[]; filter: Filter; onChoose: (words: string) => void }) {
  const tags = [...new Set(tasks.flatMap((task) => task.peek().video!.tags))].slice(0, MOST_TAGS);
  if (tags.length === 0) return null;
  const { words, tag: chosen } = readWords(filter.words);
  return (
    <ul class="tags" aria-label={t("labels.tags")}>
      {tags.map((tag) => (
        <li key={tag}>
          <button type="button" class="chip" aria-pressed={tag === chosen} onClick={() => onChoose([...words, ...(tag === chosen ? [] : [`#${tag}`])].join(" "))}>
            #{tag}
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The end of a grid: older videos are asked for as it comes near. */
export function More({ state, onMore }: { state: Listing; onMore: () => void }) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = ref.current;
    if (element === null || state !== "idle") return;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && onMore(), { rootMargin: "800px" });
    observer.observe(element);
    return () => observer.disconnect();
    // A page that leaves the end in sight asks for the next one.
  }, [order.value.length, state]);
  return (
    <div ref={ref} class="more">
      {state === "loading" && (
        <>
          <Spinner />
          <span>{t("loading")}</span>
        </>
      )}
      {state === "failed" && <Failed words={t("error.unreachable")} onRetry={onMore} />}
    </div>
  );
}

function Tile({ source, chosen, onChoose, onOpen }: { source: Signal<Task>; chosen: boolean; onChoose: (on: boolean) => void; onOpen: () => void }) {
  const task = source.value;
  const video = task.video!;
  const [visible, ref] = useVisible();
  const place = useSignal<number | null>(null);
  const done = task.status === "completed";
  const cells = cellsOf(video.frames);
  const { width, height } = readSize(video.size);
  const cell = place.value === null ? null : cellOf(place.value, cells);
  return (
    <li class={chosen ? "tile tile-chosen" : "tile"}>
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
          <span>{video.frames === STILL ? t("card.still") : duration(Number(video.seconds))}</span>
          <span>{ago(video.created_at, Date.now() / 1000)}</span>
          {video.tags.map((tag) => (
            <span key={tag}>#{tag}</span>
          ))}
        </span>
      </button>
      <input class="tile-choose" type="checkbox" checked={chosen} aria-label={t("library.choose", { prompt: video.prompt })} onChange={(event) => onChoose(event.currentTarget.checked)} />
      <Star video={video} class="tile-star" />
      <IconButton class="tile-delete" icon="trash" label={t("library.delete", { prompt: video.prompt })} onClick={() => deleteLater(task.id)} />
    </li>
  );
}
