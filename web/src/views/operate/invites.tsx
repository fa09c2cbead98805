// Makes an invite, and shows its link once.
import { useSignal, type Signal } from "@preact/signals";
import { call } from "../../api/http";
import { explain } from "../../api/words";
import { t } from "../../i18n";
import { Button, Choice, Dialog, Failed, Field } from "../../ui/controls";
import { Copyable } from "../../ui/copyable";

export interface Limits {
  readonly videos: number | null;
  readonly chats: number | null;
}

const DAY_S = 86_400;
const LIVES = { day: DAY_S, week: 7 * DAY_S, month: 30 * DAY_S } as const;
type Life = keyof typeof LIVES;

export function InviteDialog({ onClose, onMade }: { onClose: () => void; onMade: () => void }) {
  const note = useSignal("");
  const uses = useSignal("1");
  const life = useSignal<Life>("week");
  const tenant = useSignal("");
  const role = useSignal<"user" | "admin">("user");
  const limits = useSignal<Limits>({ videos: null, chats: null });
  const made = useSignal<string | null>(null);
  const problem = useSignal<unknown>(null);
  const create = async () => {
    try {
      const body = { note: note.value.trim(), uses: Number(uses.value), expires_in_s: LIVES[life.value], tenant: tenant.value.trim(), role: role.value, limits: limits.value };
      made.value = (await call("POST /v1/invites", { body })).token;
      problem.value = null;
      onMade();
    } catch (err) {
      problem.value = err;
    }
  };
  if (made.value !== null) return <InviteLink token={made.value} about={t("invites.once", { n: Number(uses.value) })} onClose={onClose} />;
  return (
    <Dialog title={t("people.invite")} onClose={onClose}>
      <form onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}>
        <Field label={t("invites.note")} hint={t("invites.note_hint")}>
          {(ids) => <input {...ids} maxLength={200} autocomplete="off" value={note.value} onInput={(event) => (note.value = event.currentTarget.value)} />}
        </Field>
        <Field label={t("invites.uses")}>
          {(ids) => <input {...ids} type="number" required min={1} max={10_000} step={1} value={uses.value} onInput={(event) => (uses.value = event.currentTarget.value)} />}
        </Field>
        <div class="field">
          <span class="field-label">{t("invites.life")}</span>
          <Choice label={t("invites.life")} value={life.value} onChange={(value) => (life.value = value)} options={(Object.keys(LIVES) as Life[]).map((value) => ({ value, text: t(`invites.${value}`) }))} />
        </div>
        <LimitFields limits={limits} />
        <details>
          <summary>{t("form.advanced")}</summary>
          <div class="details-body">
            <Field label={t("operate.tenant")} hint={t("invites.tenant_hint")}>
              {(ids) => <input {...ids} maxLength={64} autocomplete="off" spellcheck={false} value={tenant.value} onInput={(event) => (tenant.value = event.currentTarget.value)} />}
            </Field>
            <div class="field">
              <span class="field-label">{t("keys.role")}</span>
              <Choice label={t("keys.role")} value={role.value} onChange={(value) => (role.value = value)} options={(["user", "admin"] as const).map((value) => ({ value, text: t(`role.${value}`) }))} />
              <p class="field-hint">{t(`role.about_${role.value}`)}</p>
            </div>
          </div>
        </details>
        {problem.value !== null && <Failed words={explain(problem.value)} />}
        <div class="row row-end">
          <Button onClick={onClose}>{t("cancel")}</Button>
          <Button kind="primary" type="submit" icon="share">{t("invites.make")}</Button>
        </div>
      </form>
    </Dialog>
  );
}

export function InviteLink({ token, about, onClose }: { token: string; about: string; onClose: () => void }) {
  return (
    <Dialog title={t("invites.link")} onClose={onClose}>
      <p>{about}</p>
      <Copyable label="invites.link" text={`${location.origin}/#invite=${token}`} />
      <div class="row row-end">
        <Button kind="primary" onClick={onClose}>{t("done")}</Button>
      </div>
    </Dialog>
  );
}

export function LimitFields({ limits }: { limits: Signal<Limits> }) {
  const field = (what: keyof Limits) => (
    <Field label={t(what === "videos" ? "people.videos_a_day" : "people.chats_a_day")}>
      {(ids) => (
        <input {...ids} type="number" min={0} max={1_000_000} step={1} placeholder={t("people.no_limit")} value={limits.value[what] ?? ""} onInput={(event) => {
            const given = event.currentTarget.value;
            limits.value = { ...limits.value, [what]: given === "" ? null : Number(given) };
          }} />
      )}
    </Field>
  );
  return (
    <div class="pair">
      {field("videos")}
      {field("chats")}
    </div>
  );
}
