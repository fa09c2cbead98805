// Keys: create (shown once), list, revoke.
import { useSignal } from "@preact/signals";
import { ApiError, call } from "../../api/http";
import type { KeyShown, Role } from "../../api/schema";
import { explain } from "../../api/words";
import { ago, t } from "../../i18n";
import { Button, Choice, Dialog, Failed, Field } from "../../ui/controls";
import { Copyable } from "../../ui/copyable";
import { say } from "../../ui/toasts";
import { Loaded, usePolled } from "../../ui/polled";

const ROLES: readonly Role[] = ["user", "admin", "worker", "metrics"];

export function KeysTab() {
  const polled = usePolled(async () => (await call("GET /v1/keys", {})).data, 10_000);
  const creating = useSignal(false);
  const revoking = useSignal<KeyShown | null>(null);
  return (
    <section aria-labelledby="keys-title">
      <div class="row row-spread">
        <h2 id="keys-title">{t("operate.keys")}</h2>
        <Button kind="primary" icon="plus" onClick={() => (creating.value = true)}>
          {t("keys.create")}
        </Button>
      </div>
      <Loaded polled={polled}>
        {(keys) => (
          <div class="panel table-box" tabIndex={0} role="group" aria-labelledby="keys-title">
            <table>
              <thead>
                <tr>
                  <th scope="col">{t("keys.name")}</th>
                  <th scope="col">{t("operate.tenant")}</th>
                  <th scope="col">{t("keys.role")}</th>
                  <th scope="col">{t("keys.made")}</th>
                  <th scope="col">
                    <span class="sr-only">{t("keys.revoke")}</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {keys.map((key) => (
                  <tr key={key.id}>
                    <th scope="row">
                      {key.name || "–"}
                      <small class="quiet block">tk-{key.id}.…</small>
                    </th>
                    <td data-label={t("operate.tenant")}>{key.tenant}</td>
                    <td data-label={t("keys.role")}>{t(`role.${key.role}`)}</td>
                    <td data-label={t("keys.made")}>{ago(key.created_at, Date.now() / 1000)}</td>
                    <td class="num table-act">
                      <Button kind="danger" aria-label={t("keys.revoke_name", { name: key.name || key.id })} onClick={() => (revoking.value = key)}>
                        {t("keys.revoke")}
                      </Button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
      {creating.value && <CreateDialog onClose={() => (creating.value = false)} onMade={polled.again} />}
      {revoking.value !== null && <RevokeDialog target={revoking.value} onClose={() => (revoking.value = null)} onDone={polled.again} />}
    </section>
  );
}

function CreateDialog({ onClose, onMade }: { onClose: () => void; onMade: () => void }) {
  const name = useSignal("");
  const tenant = useSignal("default");
  const role = useSignal<Role>("user");
  const made = useSignal<KeyShown | null>(null);
  const problem = useSignal<unknown>(null);
  const create = async () => {
    try {
      made.value = await call("POST /v1/keys", { body: { name: name.value, tenant: tenant.value, role: role.value } });
      problem.value = null;
      onMade();
    } catch (err) {
      problem.value = err;
    }
  };
  return (
    <Dialog title={t("keys.create")} onClose={onClose}>
      {made.value?.token ? (
        <>
          <p>{t("keys.once")}</p>
          <Copyable label="keys.token" text={made.value.token} />
          <div class="row row-end">
            <Button kind="primary" onClick={onClose}>{t("done")}</Button>
          </div>
        </>
      ) : (
        <form onSubmit={(event) => {
            event.preventDefault();
            void create();
          }}>
          <Field label={t("keys.name")} hint={t("keys.name_hint")}>
            {(ids) => <input {...ids} maxLength={100} autocomplete="off" value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}
          </Field>
          <Field label={t("operate.tenant")} hint={t("keys.tenant_hint")}>
            {(ids) => <input {...ids} maxLength={64} autocomplete="off" spellcheck={false} value={tenant.value} onInput={(event) => (tenant.value = event.currentTarget.value)} />}
          </Field>
          <div class="field">
            <span class="field-label">{t("keys.role")}</span>
            <Choice label={t("keys.role")} value={role.value} onChange={(value) => (role.value = value)} options={ROLES.map((value) => ({ value, text: t(`role.${value}`) }))} />
            <p class="field-hint">{t(`role.about_${role.value}`)}</p>
          </div>
          {problem.value !== null && <Failed words={explain(problem.value)} />}
          <div class="row row-end">
            <Button onClick={onClose}>{t("cancel")}</Button>
            <Button kind="primary" type="submit" icon="key">{t("keys.create")}</Button>
          </div>
        </form>
      )}
    </Dialog>
  );
}

function RevokeDialog({ target, onClose, onDone }: { target: KeyShown; onClose: () => void; onDone: () => void }) {
  const inUse = useSignal<string | null>(null);
  const revoke = async () => {
    try {
      await call("DELETE /v1/keys/{key_id}", { path: { key_id: target.id }, query: { in_use: inUse.value !== null } });
      say(t("keys.revoked"));
      onDone();
    } catch (err) {
      if (err instanceof ApiError && err.code === "key_in_use") {
        inUse.value = explain(err);
        return;
      }
      say(explain(err), "bad");
    }
    onClose();
  };
  return (
    <Dialog title={t("keys.revoke_title", { name: target.name || target.id })} onClose={onClose}>
      <p>{t("keys.revoke_about")}</p>
      {inUse.value !== null && <Failed words={inUse.value} />}
      <div class="row row-end">
        <Button onClick={onClose}>{t("cancel")}</Button>
        <Button kind="danger" icon="trash" onClick={() => void revoke()}>{t(inUse.value === null ? "keys.revoke" : "keys.revoke_in_use")}</Button>
      </div>
    </Dialog>
  );
}
