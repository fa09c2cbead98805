// My account: who I am, what I used and may ask for, my keys and sessions, all of it as a file, and gone.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { leave } from "../../api/session";
import type { AccountShown } from "../../api/schema";
import { explain } from "../../api/words";
import { clock, number, t } from "../../i18n";
import { Button, Dialog, Failed, Field } from "../../ui/controls";
import { Copyable } from "../../ui/copyable";
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
  const problem = useSignal<unknown>(null);
  const save = async () => {
    try {
      await call("PATCH /v1/account", { body: { name: name.value.trim(), email: address.value.trim() } });
      onDone();
      onClose();
    } catch (err) {
      problem.value = err;
    }
  };
  return (
    <Dialog title={t("account.edit")} onClose={onClose}>
      <form onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}>
        <Field label={t("person.name")}>
          {(ids) => <input {...ids} required maxLength={100} autocomplete="name" value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />}
        </Field>
        <Field label={t("person.email")}>
          {(ids) => <input {...ids} type="email" maxLength={255} autocomplete="email" value={address.value} onInput={(event) => (address.value = event.currentTarget.value)} />}
        </Field>
        {problem.value !== null && <Failed words={explain(problem.value)} />}
        <div class="row row-end">
          <Button onClick={onClose}>{t("cancel")}</Button>
          <Button kind="primary" type="submit">{t("save")}</Button>
        </div>
      </form>
    </Dialog>
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
  const busy = useSignal(false);
  const problem = useSignal<unknown>(null);
  const erase = async () => {
    busy.value = true;
    try {
      await call("DELETE /v1/account", { query: { everything: true }, patienceMs: 600_000 });
      say(t("account.deleted"));
      await leave();
    } catch (err) {
      problem.value = err;
      busy.value = false;
    }
  };
  return (
    <Dialog title={t("account.delete")} onClose={onClose}>
      <form onSubmit={(event) => {
          event.preventDefault();
          if (typed.value.trim() === name) void erase();
        }}>
        <p>{t("account.delete_about")}</p>
        <Field label={t("account.delete_type", { name })}>
          {(ids) => <input {...ids} autocomplete="off" spellcheck={false} value={typed.value} onInput={(event) => (typed.value = event.currentTarget.value)} />}
        </Field>
        {problem.value !== null && <Failed words={explain(problem.value)} />}
        <div class="row row-end">
          <Button onClick={onClose}>{t("cancel")}</Button>
          <Button kind="danger" type="submit" icon="trash" busy={busy.value} disabled={typed.value.trim() !== name}>
            {t("account.delete_now")}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** A secret that is shown once, in a dialog of its own. */
export function ShownOnce({ title, about, label, text, onClose }: { title: string; about: string; label: "keys.token" | "account.link"; text: string; onClose: () => void }) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{about}</p>
      <Copyable label={label} text={text} />
      <div class="row row-end">
        <Button kind="primary" onClick={onClose}>{t("done")}</Button>
      </div>
    </Dialog>
  );
}
