// The models that can be called, asked for again while somebody looks at them.
import { computed, signal } from "@preact/signals";
import { call } from "./http";
import type { ChatModelShown, VideoModelShown } from "./schema";

export type VideoModel = VideoModelShown;
export type ChatModel = ChatModelShown;
export type Model = VideoModel | ChatModel;

const POLL_MS = 4_000;

export const models = signal<readonly Model[] | null>(null);
export const modelsFailed = signal<unknown>(null);
export const videoModels = computed(() => models.value?.filter((m): m is VideoModel => m.kind === "video") ?? []);
export const chatModels = computed(() => models.value?.filter((m): m is ChatModel => m.kind === "chat") ?? []);

let timer: number | undefined;

export async function loadModels(): Promise<void> {
  try {
    models.value = (await call("GET /v1/models", {})).data;
    modelsFailed.value = null;
  } catch (err) {
    modelsFailed.value = err; // the list from before stays
  }
}

export function startModels(): void {
  void loadModels();
  timer = window.setInterval(() => {
    if (!document.hidden) void loadModels();
  }, POLL_MS);
}

export function stopModels(): void {
  window.clearInterval(timer);
  models.value = null;
}
