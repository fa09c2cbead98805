// My keys: for my programs; they may do what I may, or less.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import type { KeyShown } from "../../api/schema";
import { explain } from "../../api/words";
import { ago, clock, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Choice, Dialog, Failed, Field } from "../../ui/controls";
import { Loaded, usePolled } from "../../ui/polled";
import { say } from "../../ui/toasts";
import { ShownOnce } from "./account";

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
  const role = useSignal<"user" | "admin">("user");
  const problem = useSignal<unknown>(null);
  const create = async () => {
    const days = LIVES[life.value];
    try {
      onMade(await call("POST /v1/account/keys", { body: { name: name.value.trim(), role: role.value, expires_in_s: days === null ? null : days * 86_400 } }));
    } catch (err) {
      problem.value = err;
    }
  };
  return (
    <Dialog title={t("keys.create")} onClose={onClose}>
      <form onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}>
        <Field label={t("keys.name")} hint={t("account.key_hint")}>
          {(ids) => <input {...ids} maxLength={100} autocomplete="off" value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}
        </Field>
        <div class="field">
          <span class="field-label">{t("account.key_life")}</span>
          <Choice label={t("account.key_life")} value={life.value} onChange={(value) => (life.value = value)} options={(Object.keys(LIVES) as Life[]).map((value) => ({ value, text: t(`account.life_${value}`) }))} />
        </div>
        {admin && (
          <div class="field">
            <span class="field-label">{t("keys.role")}</span>
            <Choice label={t("keys.role")} value={role.value} onChange={(value) => (role.value = value)} options={(["user", "admin"] as const).map((value) => ({ value, text: t(`role.${value}`) }))} />
            <p class="field-hint">{t(`role.about_${role.value}`)}</p>
          </div>
        )}
        {problem.value !== null && <Failed words={explain(problem.value)} />}
        <div class="row row-end">
          <Button onClick={onClose}>{t("cancel")}</Button>
          <Button kind="primary" type="submit" icon="key">{t("keys.create")}</Button>
        </div>
      </form>
    </Dialog>
  );
}
