// Keys: create (shown once), list, revoke.
import { useSignal } from "@preact/signals";
import { ApiError, call } from "../../api/http";
import type { KeyShown, Role } from "../../api/schema";
import { explain } from "../../api/words";
import { ago, t } from "../../i18n";
import { Button, Dialog, Failed } from "../../ui/controls";
import { FormDialog, RoleField, ShownOnce, TextField } from "../../ui/forms";
import { say } from "../../ui/toasts";
import { Loaded, usePolled } from "../../ui/polled";
import { Table } from "../../ui/table";

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
          <Table about="keys-title" rows={keys} keyOf={(key) => key.id} columns={[
              {
                head: t("keys.name"),
                cell: (key) => (
                  <>
                    {key.name || "–"}
                    <small class="quiet block">tk-{key.id}.…</small>
                  </>
                ),
              },
              { head: t("operate.tenant"), cell: (key) => key.tenant },
              { head: t("keys.role"), cell: (key) => t(`role.${key.role}`) },
              { head: t("keys.made"), cell: (key) => ago(key.created_at, Date.now() / 1000) },
              {
                head: t("keys.revoke"),
                kind: "act",
                cell: (key) => (
                  <Button kind="danger" aria-label={t("keys.revoke_name", { name: key.name || key.id })} onClick={() => (revoking.value = key)}>
                    {t("keys.revoke")}
                  </Button>
                ),
              },
            ]} />
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
  const made = useSignal<string | null>(null);
  const create = async () => {
    made.value = (await call("POST /v1/keys", { body: { name: name.value, tenant: tenant.value, role: role.value } })).token ?? null;
    onMade();
  };
  if (made.value !== null) return <ShownOnce title={t("keys.create")} about={t("keys.once")} label="keys.token" text={made.value} onClose={onClose} />;
  return (
    <FormDialog title={t("keys.create")} send={create} submit={t("keys.create")} icon="key" onClose={onClose}>
      <TextField label={t("keys.name")} hint={t("keys.name_hint")} value={name} maxLength={100} autocomplete="off" />
      <TextField label={t("operate.tenant")} hint={t("keys.tenant_hint")} value={tenant} maxLength={64} autocomplete="off" spellcheck={false} />
      <RoleField roles={ROLES} value={role} />
    </FormDialog>
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
