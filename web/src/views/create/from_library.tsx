// A picture, or a frame of a video, from the library as the first frame. Loaded when it is opened first.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { contentPath } from "../../api/media";
import type { Video } from "../../api/schema";
import { frameOf, pictureOf } from "../../card/reuse";
import { t } from "../../i18n";
import { matches, NO_FILTER, useSearch, type Filter } from "../../tasks/search";
import { order, taskOf } from "../../tasks/store";
import { Button, Dialog, Empty } from "../../ui/controls";
import { SearchField } from "../../ui/forms";
import { say } from "../../ui/toasts";
import { hidden } from "../library/deleting";
import { More } from "../library/library";
import { chooseImage } from "./composer";
import { STILL } from "./rules";

export default function FromLibraryDialog({ onClose }: { onClose: () => void }) {
  const filter = useSignal<Filter>({ ...NO_FILTER, status: "completed" });
  const search = useSearch(filter.value);
  const clip = useSignal<Video | null>(null);
  const take = async (picture: Promise<File>) => {
    try {
      chooseImage(await picture);
      onClose();
    } catch {
      say(t("card.no_frame"), "bad");
    }
  };
  const found = order.value
    .filter((id) => !hidden.value.has(id))
    .map((id) => taskOf(id)?.peek())
    .filter((task) => task?.video != null && matches(filter.value, { ...task.video, status: task.status }))
    .map((task) => task!.video!);
  return (
    <Dialog title={t("form.image_library")} wide onClose={onClose}>
      {clip.value !== null ? (
        <Frames video={clip.value} onBack={() => (clip.value = null)} onTake={(player) => void take(frameOf(player, t("form.image_frame")))} />
      ) : (
        <>
          <SearchField label={t("library.search")} maxLength={200} value={filter.value.words} onInput={(words) => (filter.value = { ...filter.value, words })} />
          <ul class="picks">
            {found.map((video) => (
              <li key={video.id}>
                <button type="button" class="pick" title={video.prompt} onClick={() => (video.frames === STILL ? void take(pictureOf(video, t("form.image_frame"))) : (clip.value = video))}>
                  <img src={contentPath(video.id, "thumbnail")} alt={video.prompt} loading="lazy" />
                </button>
              </li>
            ))}
          </ul>
          {found.length === 0 && search.state.value === "all" && <Empty icon="search" title={t("library.none_found")} />}
          <More state={search.state.value} onMore={() => void search.next()} />
        </>
      )}
    </Dialog>
  );
}

/** The video stands where its frame is taken. */
function Frames({ video, onBack, onTake }: { video: Video; onBack: () => void; onTake: (player: HTMLVideoElement) => void }) {
  const player = useRef<HTMLVideoElement>(null);
  const at = useSignal(0);
  const seek = (frame: number) => {
    at.value = frame;
    if (player.current !== null) player.current.currentTime = (frame + 0.5) / video.fps;
  };
  return (
    <div class="frames">
      <video ref={player} src={contentPath(video.id, "video")} aria-label={video.prompt} muted playsInline preload="auto" />
      <input type="range" min={0} max={video.frames - 1} value={at.value} aria-label={t("form.image_which")} aria-valuetext={t("form.image_frame_of", { n: at.value + 1, of: video.frames })} onInput={(event) => seek(Number(event.currentTarget.value))} />
      <div class="row row-end">
        <Button onClick={onBack}>{t("back")}</Button>
        <Button kind="primary" icon="image" onClick={() => player.current && onTake(player.current)}>
          {t("form.image_take")}
        </Button>
      </div>
    </div>
  );
}
