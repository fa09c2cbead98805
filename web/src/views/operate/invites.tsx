// Makes an invite, and shows its link once.
import { useSignal, type Signal } from "@preact/signals";
import { call } from "../../api/http";
import { t } from "../../i18n";
import { Field } from "../../ui/controls";
import { ChoiceField, FormDialog, PERSON_ROLES, RoleField, ShownOnce, TextField, type PersonRole } from "../../ui/forms";

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
  const role = useSignal<PersonRole>("user");
  const limits = useSignal<Limits>({ videos: null, chats: null });
  const made = useSignal<string | null>(null);
  const create = async () => {
    const body = { note: note.value.trim(), uses: Number(uses.value), expires_in_s: LIVES[life.value], tenant: tenant.value.trim(), role: role.value, limits: limits.value };
    made.value = (await call("POST /v1/invites", { body })).token;
    onMade();
  };
  if (made.value !== null) return <InviteLink token={made.value} about={t("invites.once", { n: Number(uses.value) })} onClose={onClose} />;
  return (
    <FormDialog title={t("people.invite")} send={create} submit={t("invites.make")} icon="share" onClose={onClose}>
      <TextField label={t("invites.note")} hint={t("invites.note_hint")} value={note} maxLength={200} autocomplete="off" />
      <TextField label={t("invites.uses")} value={uses} type="number" required min={1} max={10_000} step={1} />
      <ChoiceField label={t("invites.life")} value={life} options={(Object.keys(LIVES) as Life[]).map((value) => ({ value, text: t(`invites.${value}`) }))} />
      <LimitFields limits={limits} />
      <details>
        <summary>{t("form.advanced")}</summary>
        <div class="details-body">
          <TextField label={t("operate.tenant")} hint={t("invites.tenant_hint")} value={tenant} maxLength={64} autocomplete="off" spellcheck={false} />
          <RoleField roles={PERSON_ROLES} value={role} />
        </div>
      </details>
    </FormDialog>
  );
}

export function InviteLink({ token, about, onClose }: { token: string; about: string; onClose: () => void }) {
  return <ShownOnce title={t("invites.link")} about={about} label="invites.link" text={`${location.origin}/#invite=${token}`} onClose={onClose} />;
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
