// Making and revoking the link by which anyone can see one video.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../api/http";
import type { ShareShown } from "../api/schema";
import { explain } from "../api/words";
import { clock, t } from "../i18n";
import { Button, Choice, Dialog, Failed, Spinner } from "../ui/controls";
import { Copyable } from "../ui/copyable";

const DAY_S = 86_400;
const LIVES = { hour: 3_600, day: DAY_S, week: 7 * DAY_S } as const;
type Life = keyof typeof LIVES;

export function ShareDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const life = useSignal<Life>("day");
  const made = useSignal<ShareShown | null>(null);
  const others = useSignal<readonly ShareShown[] | null>(null);
  const problem = useSignal<unknown>(null);
  const path = { video_id: id };
  const load = async () => {
    try {
      others.value = (await call("GET /v1/videos/{video_id}/shares", { path })).data;
      problem.value = null;
    } catch (err) {
      problem.value = err;
    }
  };
  useEffect(() => void load(), []);
  const make = async () => {
    try {
      made.value = await call("POST /v1/videos/{video_id}/shares", { path, body: { expires_in_s: LIVES[life.value] } });
      await load();
    } catch (err) {
      problem.value = err;
    }
  };
  const revoke = async (share: ShareShown) => {
    try {
      await call("DELETE /v1/videos/{video_id}/shares/{share_id}", { path: { ...path, share_id: share.id } });
      if (made.value?.id === share.id) made.value = null;
      await load();
    } catch (err) {
      problem.value = err;
    }
  };
  return (
    <Dialog title={t("share.title")} onClose={onClose}>
      <p>{t("share.about")}</p>
      {problem.value !== null && <Failed words={explain(problem.value)} />}
      {made.value !== null && <Copyable label="share.link" text={`${location.origin}/#/share/${made.value.token}`} />}
      <div class="row">
        <Choice label={t("share.life")} value={life.value} onChange={(value) => (life.value = value)} options={(Object.keys(LIVES) as Life[]).map((value) => ({ value, text: t(`share.${value}`) }))} />
        <Button kind="primary" icon="share" onClick={() => void make()}>
          {t("share.make")}
        </Button>
      </div>
      {others.value === null && problem.value === null && <Spinner />}
      {others.value !== null && others.value.length > 0 && (
        <ul class="plain-list" aria-label={t("share.links")}>
          {others.value.map((share) => (
            <li key={share.id}>
              <span>{t("share.until", { time: clock(share.expires_at) })}</span>
              <Button kind="danger" onClick={() => void revoke(share)}>
                {t("share.revoke")}
              </Button>
            </li>
          ))}
        </ul>
      )}
    </Dialog>
  );
}
