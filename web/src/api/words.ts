// What went wrong, in the person's language, and what to do about it.
import { duration, lang, t, type Key } from "../i18n";
import { ApiError, Unreachable } from "./http";
import type { PullVerdict, VideoError } from "./schema";

const BY_CODE: Record<string, Key> = {
  invalid_api_key: "error.invalid_api_key",
  missing_api_key: "error.invalid_api_key",
  role_not_allowed: "error.role_not_allowed",
  model_unavailable: "error.model_unavailable",
  model_not_found: "error.model_not_found",
  video_not_found: "error.video_not_found",
  too_many_waiting: "error.too_many_waiting",
  body_too_large: "error.body_too_large",
  image_too_large: "error.image_too_large",
  invalid_image: "error.invalid_image",
  unavailable: "error.unavailable",
  internal_error: "error.internal",
  replica_lost: "error.engine",
  replica_unreachable: "error.engine",
  replica_broken: "error.engine",
  replica_silent: "error.engine",
  replica_refused: "error.engine",
  engine_unreachable: "error.engine",
  shutting_down: "error.unavailable",
  command_not_allowed: "error.command_not_allowed",
  share_not_found: "error.share_not_found",
  key_in_use: "error.key_in_use",
  invalid_invite: "error.invalid_invite",
  daily_limit: "error.daily_limit",
  content_refused: "error.content_refused",
  check_unavailable: "error.check_unavailable",
  too_many_guests: "error.too_many_guests",
  guest_refused: "error.guest_refused",
  session_needed: "error.session_needed",
  terms_needed: "error.terms_needed",
  conversation_not_found: "error.conversation_not_found",
  conversation_too_large: "error.conversation_too_large",
  too_many_conversations: "error.too_many_conversations",
  pictures_not_supported: "error.pictures",
  own_person: "error.own_person",
  budget_exceeded: "error.budget_exceeded",
  too_many_failed_logins: "error.too_many_failed_logins",
  too_many_keys: "error.too_many_of_them",
  too_many_presets: "error.too_many_of_them",
  too_many_pulls: "error.too_many_of_them",
  too_many_shares: "error.too_many_of_them",
  image_too_costly: "error.image_too_large",
  images_busy: "error.unavailable",
  prompt_too_late: "error.prompt_too_late",
  prompt_unanswered: "error.prompt_unanswered",
  hub_unavailable: "error.hub_unavailable",
  hub_unreadable: "error.hub_unreadable",
  hub_permission: "error.hub_permission",
  hub_wrong_bytes: "error.hub_wrong_bytes",
  not_at_hub: "error.not_at_hub",
  disk_full: "error.disk_full",
  folder_not_writable: "error.folder_not_writable",
};

const BY_STATUS: Record<number, Key> = { 429: "error.limited", 413: "error.body_too_large", 500: "error.internal", 502: "error.unreachable", 503: "error.unavailable" };

/** A problem in words. What only the gateway can say is quoted in its own. */
export function explain(err: unknown): string {
  if (err instanceof Unreachable) return t("error.unreachable");
  if (!(err instanceof ApiError)) return t("error.unknown");
  const known = (err.code !== null ? BY_CODE[err.code] : undefined) ?? BY_STATUS[err.status];
  if (known === undefined) return lang.value === "en" ? err.message : t("error.said", { message: err.message });
  const wait = err.retryAfterS !== null && err.status === 429 ? ` ${t("error.retry_after", { time: duration(err.retryAfterS) })}` : "";
  return t(known, { message: err.message }) + wait;
}

/** Why a pull failed; null where only its own words are known. */
export function explainPull(code: string): string | null {
  const known = BY_CODE[code];
  return known === undefined ? null : t(known);
}

const VERDICT: Record<string, Key> = {
  mode: "verdict.mode",
  weights: "verdict.weights",
  no_weights: "verdict.no_weights",
  no_gpu: "verdict.no_gpu",
  gpus_missing: "verdict.gpus_missing",
  gpus_have: "verdict.gpus_have",
  gpu_too_small: "verdict.gpu_too_small",
  sizes: "verdict.sizes",
  sizes_idle_away: "verdict.sizes_idle_away",
  sizes_too_large: "verdict.sizes_too_large",
};

/** What speaks for and against a model on this machine, a line each. */
export function explainVerdict(parts: PullVerdict["parts"]): string[] {
  return parts.map(({ code, params }) => {
    const known = VERDICT[code];
    return known === undefined ? code : t(known, params);
  });
}

const FAILURES: Record<string, Key> = {
  attempts_exhausted: "failed.attempts_exhausted",
  expired: "failed.expired",
  unplaceable: "failed.unplaceable",
  model_removed: "failed.model_removed",
  model_unavailable: "failed.unplaceable",
  unrenderable: "failed.unrenderable",
  content_refused: "failed.content_refused",
  check_unavailable: "failed.check_unavailable",
  record_unreadable: "failed.record_unreadable",
};

const DETAILS: Record<string, Key> = {
  attempts_exhausted: "detail.attempts_exhausted",
  model_removed: "detail.model_removed",
  model_unavailable: "detail.model_unavailable",
};

/** Why a task failed: a sentence with advice, and more of it below. What an engine or a machine said is quoted in its own words. */
export function explainFailure(error: VideoError | null): { words: string; detail: string; reason: string } {
  if (error === null) return { words: t("failed.unknown"), detail: "", reason: "" };
  const words = t(FAILURES[error.code] ?? "failed.unknown");
  const params = error.params ?? {};
  const known = DETAILS[error.code];
  // A task from before params were told has the message alone.
  if (known === undefined || Object.keys(params).length === 0) return { words, detail: "", reason: error.message };
  return { words, detail: t(known, params), reason: String(params.reason ?? "") };
}
