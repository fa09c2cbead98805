// Making and revoking the link by which anyone can see one video.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, callProposed } from "../api/http";
import type { Share } from "../api/proposed";
import { explain } from "../api/words";
import { clock, t } from "../i18n";
import { Button, Choice, Copyable, Dialog, Failed, Spinner } from "../ui/controls";

const DAY_S = 86_400;
const LIVES = { hour: 3_600, day: DAY_S, week: 7 * DAY_S } as const;
type Life = keyof typeof LIVES;

type Shared = Omit<Share, "token">;

export function ShareDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const life = useSignal<Life>("day");
  const made = useSignal<Share | null>(null);
  const others = useSignal<readonly Shared[] | null>(null);
  const problem = useSignal<unknown>(null);
  const path = `/v1/videos/${encodeURIComponent(id)}/shares`;
  const load = async () => {
    try {
      others.value = (await callProposed<{ data: Shared[] }>("GET", path)).data;
      problem.value = null;
    } catch (err) {
      problem.value = err;
    }
  };
  useEffect(() => void load(), []);
  const make = async () => {
    try {
      made.value = await callProposed<Share>("POST", path, { body: { expires_in_s: LIVES[life.value] } });
      await load();
    } catch (err) {
      problem.value = err;
    }
  };
  const revoke = async (share: Shared) => {
    try {
      await callProposed("DELETE", `${path}/${encodeURIComponent(share.id)}`);
      if (made.value?.id === share.id) made.value = null;
      await load();
    } catch (err) {
      problem.value = err;
    }
  };
  const absent = problem.value instanceof ApiError && problem.value.status === 404 && problem.value.code === "unknown_url";
  return (
    <Dialog title={t("share.title")} onClose={onClose}>
      <p>{t("share.about")}</p>
      {problem.value !== null && <Failed words={absent ? t("share.absent") : explain(problem.value)} />}
      {made.value !== null && <Copyable label="share.link" text={`${location.origin}/#/share/${made.value.token}`} />}
      {!absent && (
        <>
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
        </>
      )}
    </Dialog>
  );
}
