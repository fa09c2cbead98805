// What a video gives to the next one: its settings, the picture it began with, or its last frame.
import { contentPath } from "../api/media";
import { open } from "../api/http";
import { videoModels } from "../api/models";
import type { Video } from "../api/schema";
import { explain } from "../api/words";
import { t } from "../i18n";
import { go } from "../ui/route";
import { say } from "../ui/toasts";
import { STILL } from "../views/create/rules";
import { BLANK, change, chooseImage, form, takeSettings } from "../views/create/composer";

const FRAME_MS = 15_000;

/** Puts all of a video's settings into the form, its picture too. */
export async function useSettings(video: Video): Promise<void> {
  takeSettings(video);
  chooseImage(null);
  showForm();
  if (!video.has_image) return;
  try {
    const answer = await open(`/v1/videos/${encodeURIComponent(video.id)}/input`, {});
    chooseImage(new File([await answer.blob()], `${t("form.image_of_before")}.png`, { type: "image/png" }));
  } catch (err) {
    say(explain(err), "bad");
  }
}

/** A model that can go on from a picture: the video's own if it takes one. */
function pictureModel(video: Video) {
  const able = videoModels.value.filter((one) => one.image !== "none");
  return able.find((one) => one.id === video.model) ?? able[0];
}

export function canGoOn(video: Video): boolean {
  return pictureModel(video) !== undefined;
}

/** The last frame of a video becomes the first of the next. */
export async function goOn(video: Video): Promise<void> {
  const model = pictureModel(video);
  if (model === undefined) return;
  try {
    const frame = await lastFrameOf(video);
    takeSettings(video);
    if (model.id !== video.model) form.value = { ...BLANK, prompt: video.prompt };
    change({ model: model.id, seed: "", taken: null, ...(video.frames === STILL && { frames: null }) });
    chooseImage(frame);
    showForm();
  } catch {
    say(t("card.no_frame"), "bad");
  }
}

function showForm(): void {
  go("create");
  requestAnimationFrame(() => {
    const words = document.querySelector<HTMLElement>(".composer textarea");
    words?.focus();
    words?.scrollIntoView({ block: "nearest" });
  });
}

async function lastFrameOf(video: Video): Promise<File> {
  const name = t("form.image_last_frame");
  if (video.frames === STILL) return await pictureOf(video, name);
  const player = document.createElement("video");
  player.muted = true;
  player.preload = "auto";
  const ready = once(player, "loadeddata");
  player.src = contentPath(video.id, "video");
  await ready;
  const sought = once(player, "seeked");
  player.currentTime = Math.max(0, player.duration - 0.5 / video.fps);
  await sought;
  const frame = await frameOf(player, name);
  player.removeAttribute("src");
  player.load(); // lets go of the connection
  return frame;
}

export async function pictureOf(video: Video, name: string): Promise<File> {
  return new File([await (await open(contentPath(video.id, "picture"), {})).blob()], `${name}.png`, { type: "image/png" });
}

/** The frame that a player shows. */
export async function frameOf(player: HTMLVideoElement, name: string): Promise<File> {
  if (!player.seeking && player.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) await once(player, "loadeddata"); // nothing is shown yet
  if (player.seeking) await once(player, "seeked");
  const canvas = document.createElement("canvas");
  canvas.width = player.videoWidth;
  canvas.height = player.videoHeight;
  canvas.getContext("2d")!.drawImage(player, 0, 0);
  const picture = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
  if (picture === null) throw new Error("no picture");
  return new File([picture], `${name}.png`, { type: "image/png" });
}

function once(player: HTMLVideoElement, name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const late = window.setTimeout(() => reject(new Error(name)), FRAME_MS);
    player.addEventListener("error", () => reject(new Error("video")), { once: true });
    player.addEventListener(name, () => {
      window.clearTimeout(late);
      resolve();
    }, { once: true });
  });
}
