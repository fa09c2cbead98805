// My keys: for my programs; they may do what I may, or less.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import type { KeyShown } from "../../api/schema";
import { ago, clock, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button } from "../../ui/controls";
import { ChoiceField, FormDialog, PERSON_ROLES, RoleField, ShownOnce, TextField, type PersonRole } from "../../ui/forms";
import { Loaded, usePolled } from "../../ui/polled";
import { say } from "../../ui/toasts";

const LIVES = { month: 30, year: 365, ever: null } as const;
type Life = keyof typeof LIVES;

export function KeysPart({ admin }: { admin: boolean }) {
  const polled = usePolled(async () => (await call("GET /v1/account/keys", {})).data, 30_000);
  const creating = useSignal(false);
  const made = useSignal<KeyShown | null>(null);
  const { act } = useAct();
  const revoke = async (key: KeyShown) => {
    await act(async () => {
      await call("DELETE /v1/account/keys/{key_id}", { path: { key_id: key.id } });
      say(t("keys.revoked"));
    });
    polled.again();
  };
  return (
    <section aria-labelledby="own-keys-title">
      <div class="row row-spread">
        <h2 id="own-keys-title">{t("account.keys")}</h2>
        <Button icon="plus" onClick={() => (creating.value = true)}>
          {t("keys.create")}
        </Button>
      </div>
      <Loaded polled={polled}>
        {(keys) =>
          keys.length === 0 ? (
            <p class="quiet">{t("account.no_keys")}</p>
          ) : (
            <ul class="rows">
              {keys.map((key) => (
                <li key={key.id} class="entry">
                  <div class="entry-main">
                    <h3>{key.name || t("account.unnamed")}</h3>
                    <p class="facts">
                      <span>tk-{key.id}.…</span>
                      <span>{t(`role.${key.role}`)}</span>
                      <span>{t("account.made", { time: ago(key.created_at, Date.now() / 1000) })}</span>
                      {key.expires_at != null && <span>{t("account.until", { time: clock(key.expires_at) })}</span>}
                    </p>
                  </div>
                  <Button kind="danger" aria-label={t("keys.revoke_name", { name: key.name || key.id })} onClick={() => void revoke(key)}>
                    {t("keys.revoke")}
                  </Button>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
      {creating.value && (
        <CreateDialog admin={admin} onClose={() => (creating.value = false)} onMade={(key) => {
            creating.value = false;
            made.value = key;
            polled.again();
          }} />
      )}
      {made.value !== null && <ShownOnce title={t("keys.create")} about={t("keys.once")} label="keys.token" text={made.value.token ?? ""} onClose={() => (made.value = null)} />}
    </section>
  );
}

function CreateDialog({ admin, onClose, onMade }: { admin: boolean; onClose: () => void; onMade: (key: KeyShown) => void }) {
  const name = useSignal("");
  const life = useSignal<Life>("year");
  const role = useSignal<PersonRole>("user");
  const create = async () => {
    const days = LIVES[life.value];
    onMade(await call("POST /v1/account/keys", { body: { name: name.value.trim(), role: role.value, expires_in_s: days === null ? null : days * 86_400 } }));
  };
  return (
    <FormDialog title={t("keys.create")} send={create} submit={t("keys.create")} icon="key" onClose={onClose}>
      <TextField label={t("keys.name")} hint={t("account.key_hint")} value={name} maxLength={100} autocomplete="off" />
      <ChoiceField label={t("account.key_life")} value={life} options={(Object.keys(LIVES) as Life[]).map((value) => ({ value, text: t(`account.life_${value}`) }))} />
      {admin && <RoleField roles={PERSON_ROLES} value={role} />}
    </FormDialog>
  );
}
