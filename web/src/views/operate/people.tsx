// People: who may come in and what they may ask for; invites, by which they do.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../../api/http";
import type { InviteShown, PersonShown } from "../../api/schema";
import { explain } from "../../api/words";
import { ago, clock, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Dialog, Empty, Failed } from "../../ui/controls";
import { PERSON_ROLES, RoleField, SearchField, type PersonRole } from "../../ui/forms";
import { Loaded, usePolled } from "../../ui/polled";
import { Table } from "../../ui/table";
import { say } from "../../ui/toasts";
import { InviteDialog, InviteLink, LimitFields, type Limits } from "./invites";

const SEARCH_MS = 250;
const MANY = 200;

export function PeopleTab() {
  const search = useSignal("");
  const typed = useSignal("");
  useEffect(() => {
    const timer = window.setTimeout(() => (search.value = typed.value), SEARCH_MS);
    return () => window.clearTimeout(timer);
  }, [typed.value]);
  const people = usePolled(async () => await call("GET /v1/people", { query: { search: search.value, limit: MANY } }), 10_000, [search.value]);
  const invites = usePolled(async () => (await call("GET /v1/invites", {})).data, 10_000);
  const inviting = useSignal(false);
  const looking = useSignal<PersonShown | null>(null);
  const again = () => {
    people.again();
    invites.again();
  };
  return (
    <section aria-labelledby="people-title">
      <div class="row row-spread">
        <h2 id="people-title">{t("operate.people")}</h2>
        <Button kind="primary" icon="plus" onClick={() => (inviting.value = true)}>
          {t("people.invite")}
        </Button>
      </div>
      <SearchField label={t("people.search")} maxLength={100} value={typed.value} onInput={(words) => (typed.value = words)} />
      {people.value !== null && people.value.guests > 0 && <p class="quiet">{t("people.guests", { n: people.value.guests })}</p>}
      <Loaded polled={people}>
        {(page) =>
          page.data.length === 0 ? (
            <Empty icon="person" title={t(search.value === "" ? "people.none" : "people.none_found")}>
              {search.value === "" && <p>{t("people.none_hint")}</p>}
            </Empty>
          ) : (
            <>
              <PeopleTable people={page.data} onLook={(person) => (looking.value = person)} />
              {page.has_more && <p class="quiet">{t("people.more", { n: MANY })}</p>}
            </>
          )
        }
      </Loaded>
      <Loaded polled={invites}>{(list) => <Invites invites={list} onChanged={invites.again} />}</Loaded>
      {inviting.value && <InviteDialog onClose={() => (inviting.value = false)} onMade={invites.again} />}
      {looking.value !== null && <PersonDialog person={looking.value} onClose={() => (looking.value = null)} onChanged={again} />}
    </section>
  );
}

function PeopleTable({ people, onLook }: { people: readonly PersonShown[]; onLook: (person: PersonShown) => void }) {
  const now = Date.now() / 1000;
  return (
    <Table about="people-title" rows={people} keyOf={(person) => person.id} columns={[
        {
          head: t("person.name"),
          cell: (person) => (
            <>
              {person.name || person.id}
              {person.disabled && <span class="badge-inline">{t("people.disabled")}</span>}
              <small class="quiet block">{person.email || t(`way.${person.way}`)}</small>
            </>
          ),
        },
        { head: t("keys.role"), cell: (person) => t(`role.${person.role}`) },
        { head: t("operate.tenant"), cell: (person) => (person.tenant === `t-${person.id}` ? t("people.own_tenant") : person.tenant) },
        { head: t("people.a_day"), cell: (person) => limitWords(person.limits) },
        { head: t("people.seen"), cell: (person) => ago(person.seen_at, now) },
        {
          head: t("people.change"),
          kind: "act",
          cell: (person) => (
            <Button aria-label={t("people.change_name", { name: person.name || person.id })} onClick={() => onLook(person)}>
              {t("people.change")}
            </Button>
          ),
        },
      ]} />
  );
}

function limitWords(limits: Limits): string {
  const words = [limits.videos === null ? null : t("people.videos", { n: limits.videos }), limits.chats === null ? null : t("people.chats", { n: limits.chats })];
  return words.filter((one) => one !== null).join(", ") || "–";
}

function Invites({ invites, onChanged }: { invites: readonly InviteShown[]; onChanged: () => void }) {
  const now = Date.now() / 1000;
  const { act } = useAct();
  const open = invites.filter((one) => one.used < one.uses && one.expires_at > now);
  if (open.length === 0) return null;
  const revoke = async (invite: InviteShown) => {
    await act(async () => {
      await call("DELETE /v1/invites/{invite_id}", { path: { invite_id: invite.id } });
      say(t("invites.revoked"));
    });
    onChanged();
  };
  return (
    <section aria-labelledby="invites-title">
      <h2 id="invites-title">{t("invites.open")}</h2>
      <ul class="rows">
        {open.map((invite) => (
          <li key={invite.id} class="entry">
            <div class="entry-main">
              <h3>{invite.note || (invite.person !== null ? t("invites.for_one") : t("invites.unnamed"))}</h3>
              <p class="facts">
                <span>{t("invites.used", { n: invite.used, uses: invite.uses })}</span>
                <span>{t("account.until", { time: clock(invite.expires_at) })}</span>
                <span>{t(`role.${invite.role}`)}</span>
                <span>{invite.tenant || t("people.own_tenant")}</span>
                {limitWords(invite.limits) !== "–" && <span>{limitWords(invite.limits)}</span>}
              </p>
            </div>
            <Button kind="danger" aria-label={t("invites.revoke_name", { name: invite.note || invite.id })} onClick={() => void revoke(invite)}>
              {t("keys.revoke")}
            </Button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function PersonDialog({ person, onClose, onChanged }: { person: PersonShown; onClose: () => void; onChanged: () => void }) {
  const role = useSignal<PersonRole>(person.role === "admin" ? "admin" : "user");
  const limits = useSignal<Limits>(person.limits);
  const link = useSignal<string | null>(null);
  const removing = useSignal(false);
  const busy = useSignal(false);
  const problem = useSignal<unknown>(null);
  const act = async (what: () => Promise<unknown>, then: () => void) => {
    busy.value = true;
    problem.value = null;
    try {
      await what();
      onChanged();
      then();
    } catch (err) {
      problem.value = err;
    } finally {
      busy.value = false;
    }
  };
  const path = { person_id: person.id };
  const change = (body: Parameters<typeof call<"PATCH /v1/people/{person_id}">>[1]["body"], words: string) =>
    act(
      () => call("PATCH /v1/people/{person_id}", { path, body }),
      () => {
        say(words);
        onClose();
      },
    );
  if (link.value !== null) return <InviteLink token={link.value} about={t("people.back_about", { name: person.name })} onClose={onClose} />;
  return (
    <Dialog title={person.name || person.id} onClose={onClose}>
      <form onSubmit={(event) => {
          event.preventDefault();
          void change({ role: role.value, limits: limits.value }, t("people.changed"));
        }}>
        <p class="facts">
          <span>{person.id}</span>
          {person.email !== "" && <span>{person.email}</span>}
          <span>{t(`way.${person.way}`)}</span>
          <span>{t("people.came", { time: clock(person.created_at) })}</span>
          {person.expires_at !== null && <span>{t("account.until", { time: clock(person.expires_at) })}</span>}
        </p>
        <RoleField roles={PERSON_ROLES} value={role} />
        <LimitFields limits={limits} />
        {problem.value !== null && <Failed words={explain(problem.value)} />}
        {removing.value ? (
          <>
            <p>{t("people.remove_about")}</p>
            <div class="row row-end">
              <Button onClick={() => (removing.value = false)}>{t("cancel")}</Button>
              <Button kind="danger" icon="trash" busy={busy.value} onClick={() => void act(() => call("DELETE /v1/people/{person_id}", { path, patienceMs: 600_000 }), () => {
                  say(t("people.removed"));
                  onClose();
                })}>
                {t("people.remove_now")}
              </Button>
            </div>
          </>
        ) : (
          <>
            <div class="row">
              <Button icon={person.disabled ? "check" : "stop"} onClick={() => void change({ disabled: !person.disabled }, t(person.disabled ? "people.enabled_now" : "people.disabled_now"))}>
                {t(person.disabled ? "people.enable" : "people.disable")}
              </Button>
              {!person.disabled && (
                <Button icon="share" onClick={() => void act(async () => {
                    link.value = (await call("POST /v1/invites", { body: { person: person.id } })).token;
                  }, () => undefined)}>
                  {t("people.back")}
                </Button>
              )}
              <Button kind="danger" icon="trash" onClick={() => (removing.value = true)}>{t("people.remove")}</Button>
            </div>
            <div class="row row-end">
              <Button onClick={onClose}>{t("cancel")}</Button>
              <Button kind="primary" type="submit" busy={busy.value}>{t("save")}</Button>
            </div>
          </>
        )}
      </form>
    </Dialog>
  );
}
