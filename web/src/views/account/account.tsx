// My account: who I am, what I used and may ask for, my keys and sessions, all of it as a file, and gone.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { leave } from "../../api/session";
import type { AccountShown } from "../../api/schema";
import { clock, number, t } from "../../i18n";
import { Button } from "../../ui/controls";
import { FormDialog, TextField } from "../../ui/forms";
import { Loaded, usePolled } from "../../ui/polled";
import { say } from "../../ui/toasts";
import { KeysPart } from "./keys";
import { SessionsPart } from "./sessions";

const DAY_MS = 86_400_000;

export default function AccountView() {
  const polled = usePolled(async () => await call("GET /v1/account", {}), 15_000);
  return (
    <div class="operate account">
      <h1>{t("nav.account")}</h1>
      <Loaded polled={polled}>
        {(account) => (
          <>
            <WhoPart account={account} onChanged={polled.again} />
            <UsedPart account={account} />
            {account.person !== null && !guest(account) && <KeysPart admin={account.role === "admin"} />}
            {!guest(account) && <SessionsPart person={account.person !== null} />}
            {account.person !== null && <MinePart name={account.name || t("guest.name")} />}
          </>
        )}
      </Loaded>
    </div>
  );
}

/** Guests have no keys, and one browser. */
function guest(account: AccountShown): boolean {
  return account.person?.way === "guest";
}

/** Whether the tenant is the person's own: its name says nothing to her. */
function isAlone(account: AccountShown): boolean {
  return account.person !== null && account.tenant === `t-${account.person.id}`;
}

function WhoPart({ account, onChanged }: { account: AccountShown; onChanged: () => void }) {
  const editing = useSignal(false);
  const person = account.person;
  return (
    <section aria-labelledby="who-title">
      <div class="row row-spread">
        <h2 id="who-title">{account.name || t(guest(account) ? "guest.name" : "account.nobody")}</h2>
        {person !== null && !guest(account) && (
          <Button icon="edit" onClick={() => (editing.value = true)}>
            {t("account.edit")}
          </Button>
        )}
      </div>
      <div class="panel">
        <p class="facts">
          <span>{t(`role.${account.role}`)}</span>
          {!isAlone(account) && <span>{t("account.tenant", { tenant: account.tenant })}</span>}
          {person !== null && person.email !== "" && <span>{person.email}</span>}
          {person !== null && <span>{t(`way.${person.way}`)}</span>}
          {person?.expires_at != null && <span>{t("account.until", { time: clock(person.expires_at) })}</span>}
        </p>
        {person === null && <p class="quiet">{t("account.by_key")}</p>}
        {guest(account) && <p class="quiet">{t("guest.account")}</p>}
      </div>
      {editing.value && person !== null && <EditDialog account={account} email={person.email} onClose={() => (editing.value = false)} onDone={onChanged} />}
    </section>
  );
}

function EditDialog({ account, email, onClose, onDone }: { account: AccountShown; email: string; onClose: () => void; onDone: () => void }) {
  const name = useSignal(account.name);
  const address = useSignal(email);
  const save = async () => {
    await call("PATCH /v1/account", { body: { name: name.value.trim(), email: address.value.trim() } });
    onDone();
    onClose();
  };
  return (
    <FormDialog title={t("account.edit")} send={save} submit={t("save")} onClose={onClose}>
      <TextField label={t("person.name")} value={name} required maxLength={100} autocomplete="name" />
      <TextField label={t("person.email")} value={address} type="email" maxLength={255} autocomplete="email" />
    </FormDialog>
  );
}

/** What was used in thirty days, and what may be asked for. */
function UsedPart({ account }: { account: AccountShown }) {
  const polled = usePolled(async () => {
    const start = new Date(Date.now() - 29 * DAY_MS).toISOString().slice(0, 10);
    const [used, budgets] = await Promise.all([call("GET /v1/usage", { query: { start, tenant: account.tenant } }), call("GET /v1/budgets", {})]);
    const total = used.total ?? { videos: 0, requests: 0, tokens: 0 };
    return { used, total, budget: budgets.data.find((one) => one.tenant === account.tenant) ?? null };
  }, 60_000);
  return (
    <section aria-labelledby="used-title">
      <h2 id="used-title">{t("account.used")}</h2>
      {(account.videos_today !== null || account.chats_today !== null) && (
        <div class="meters">
          {account.videos_today !== null && <Today words={t("account.videos_today", { n: account.videos_today.asked, most: account.videos_today.most })} today={account.videos_today} />}
          {account.chats_today !== null && <Today words={t("account.chats_today", { n: account.chats_today.asked, most: account.chats_today.most })} today={account.chats_today} />}
        </div>
      )}
      <Loaded polled={polled}>
        {({ used, total, budget }) => (
          <>
            <p class="quiet">{t(isAlone(account) ? "account.used_alone" : "account.used_about")}</p>
            <dl class="tiles">
              <Tile name={t("usage.videos")} value={number(total.videos, 0)} />
              <Tile name={t("usage.requests")} value={number(total.requests, 0)} />
              <Tile name={t("account.tokens")} value={number(total.tokens, 0)} />
              {used.priced && <Tile name={t("account.cost", { currency: used.currency })} value={number(used.total?.cost?.held ?? 0, 2)} />}
            </dl>
            {budget !== null && (
              <div class="meters">
                <div class="meter">
                  <span>{t("account.budget", { spent: number(budget.spent ?? 0, 2), month: number(budget.month, 2), currency: budget.currency })}</span>
                  <meter min={0} max={budget.month} value={budget.spent ?? 0} aria-label={t("account.budget_label")} />
                </div>
              </div>
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}

function Today({ words, today }: { words: string; today: { asked: number; most: number } }) {
  return (
    <div class="meter">
      <span>{words}</span>
      <meter min={0} max={Math.max(1, today.most)} value={today.asked} aria-label={words} />
    </div>
  );
}

function Tile({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** Take everything along, and delete everything. */
function MinePart({ name }: { name: string }) {
  const deleting = useSignal(false);
  return (
    <section aria-labelledby="mine-title">
      <h2 id="mine-title">{t("account.mine")}</h2>
      <div class="panel row row-spread">
        <p class="account-about">{t("account.mine_about")}</p>
        <div class="entry-actions">
          <a class="button button-plain" href="/v1/account/export" download>
            {t("account.export")}
          </a>
          <Button kind="danger" icon="trash" onClick={() => (deleting.value = true)}>
            {t("account.delete")}
          </Button>
        </div>
      </div>
      {deleting.value && <DeleteDialog name={name} onClose={() => (deleting.value = false)} />}
    </section>
  );
}

function DeleteDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const typed = useSignal("");
  const erase = async () => {
    await call("DELETE /v1/account", { query: { everything: true }, patienceMs: 600_000 });
    say(t("account.deleted"));
    await leave();
  };
  return (
    <FormDialog title={t("account.delete")} send={erase} submit={t("account.delete_now")} kind="danger" icon="trash" ready={typed.value.trim() === name} onClose={onClose}>
      <p>{t("account.delete_about")}</p>
      <TextField label={t("account.delete_type", { name })} value={typed} autocomplete="off" spellcheck={false} />
    </FormDialog>
  );
}
