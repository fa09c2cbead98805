// Where a task stands, as a person sees it: five stations on a line. Pure.
import type { Key } from "../i18n";
import type { Task } from "../tasks/reducer";

export const STATIONS = ["queued", "waking", "loading", "drawing", "finishing"] as const;
export type Station = (typeof STATIONS)[number];

/** The station of a task that goes on. */
export function stationOf(task: Pick<Task, "status" | "stage" | "queuePosition" | "waitingFor">): Station {
  if (task.status === "queued") {
    const next = task.queuePosition === null || task.queuePosition === 0;
    return next && task.waitingFor !== null ? "waking" : "queued";
  }
  switch (task.stage) {
    case "denoising":
      return "drawing";
    case "decoding":
    case "uploading":
      return "finishing";
    default:
      return "loading";
  }
}

export const STATION_WORDS: Record<Station, Key> = {
  queued: "station.queued",
  waking: "station.waking",
  loading: "station.loading",
  drawing: "station.drawing",
  finishing: "station.finishing",
};
