// Two videos side by side, which play, stop and move together.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { contentPath } from "../api/media";
import type { Video } from "../api/schema";
import { number, t } from "../i18n";
import { taskOf } from "../tasks/store";
import { Dialog, IconButton } from "../ui/controls";
import { calm } from "../ui/theme";

const DRIFT_S = 0.06;

/** `ids` are two or more; the first two are shown, and others can be chosen in their place. */
export function CompareDialog({ ids, onClose }: { ids: readonly string[]; onClose: () => void }) {
  const videos = ids.map((id) => taskOf(id)?.value.video).filter((video): video is Video => video != null);
  const chosen = useSignal<readonly [string, string]>([ids[0]!, ids[1]!]);
  const playing = useSignal(!calm());
  const at = useSignal(0);
  const long = useSignal(0);
  const players = useRef<[HTMLVideoElement | null, HTMLVideoElement | null]>([null, null]);

  useEffect(() => {
    let drawn = 0;
    const follow = () => {
      const [one, other] = players.current;
      if (one !== null && other !== null) {
        const [leader, follower] = one.duration >= other.duration || Number.isNaN(other.duration) ? [one, other] : [other, one];
        const there = Math.min(leader.currentTime, follower.duration || 0);
        if (Math.abs(follower.currentTime - there) > DRIFT_S && !follower.seeking) follower.currentTime = there;
        at.value = leader.currentTime;
        long.value = Number.isFinite(leader.duration) ? leader.duration : 0;
      }
      drawn = requestAnimationFrame(follow);
    };
    drawn = requestAnimationFrame(follow);
    return () => cancelAnimationFrame(drawn);
  }, []);

  useEffect(() => {
    for (const player of players.current) {
      if (playing.value) void player?.play().catch(() => undefined);
      else player?.pause();
    }
  }, [playing.value, chosen.value]);

  const move = (seconds: number) => {
    for (const player of players.current) if (player !== null) player.currentTime = Math.min(seconds, player.duration || seconds);
  };
  return (
    <Dialog title={t("compare.title")} wide onClose={onClose}>
      <div class="compare">
        {([0, 1] as const).map((side) => {
          const video = videos.find((one) => one.id === chosen.value[side]);
          return (
            <figure key={side}>
              {video && <video key={video.id} ref={(element) => void (players.current[side] = element)} src={contentPath(video.id, "video")} poster={contentPath(video.id, "thumbnail")} aria-label={video.prompt} muted loop playsInline preload="auto" />}
              <figcaption>
                {videos.length > 2 ? (
                  <select aria-label={t(side === 0 ? "compare.left" : "compare.right")} value={chosen.value[side]} onChange={(event) => {
                      const id = event.currentTarget.value;
                      chosen.value = side === 0 ? [id, chosen.value[1]] : [chosen.value[0], id];
                    }}>
                    {videos.map((one) => (
                      <option key={one.id} value={one.id}>
                        {`#${one.seed} · ${one.prompt.slice(0, 40)}`}
                      </option>
                    ))}
                  </select>
                ) : (
                  video && (
                    <>
                      <span class="compare-prompt">{video.prompt}</span>
                      <span class="facts">
                        <span>{video.model}</span>
                        <span>{video.size.replace("x", " × ")}</span>
                        <span>#{video.seed}</span>
                      </span>
                    </>
                  )
                )}
              </figcaption>
            </figure>
          );
        })}
      </div>
      <div class="compare-bar">
        <IconButton icon={playing.value ? "pause" : "play"} label={t(playing.value ? "compare.pause" : "compare.play")} onClick={() => (playing.value = !playing.value)} />
        <input
          type="range"
          min={0}
          max={long.value || 1}
          step={0.01}
          value={at.value}
          aria-label={t("compare.place")}
          aria-valuetext={t("time.seconds", { n: number(at.value, 1) })}
          onInput={(event) => {
            playing.value = false;
            move(Number(event.currentTarget.value));
          }}
        />
      </div>
    </Dialog>
  );
}
