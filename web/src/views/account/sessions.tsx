// My sessions: which browsers are logged in as me; end them, or log in on another one.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { ago, clock, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button } from "../../ui/controls";
import { ShownOnce } from "../../ui/forms";
import { Loaded, usePolled } from "../../ui/polled";
import { agentOf } from "./agents";

export function SessionsPart({ person }: { person: boolean }) {
  const polled = usePolled(async () => (await call("GET /v1/account/sessions", {})).data, 15_000);
  const link = useSignal<string | null>(null);
  const { act } = useAct();
  const change = (what: () => Promise<unknown>) => void act(what).then(polled.again);
  const others = polled.value?.filter((one) => !one.current) ?? [];
  return (
    <section aria-labelledby="sessions-title">
      <div class="row row-spread">
        <h2 id="sessions-title">{t("account.sessions")}</h2>
        <div class="entry-actions">
          <Button icon="share" onClick={() => change(async () => {
              const made = await call("POST /v1/session/codes", {});
              link.value = `${location.origin}/#code=${made.code}`;
            })}>
            {t("account.elsewhere")}
          </Button>
          {others.length > 0 && (
            <Button kind="danger" icon="out" onClick={() => change(() => call("DELETE /v1/account/sessions", {}))}>
              {t("account.end_others")}
            </Button>
          )}
        </div>
      </div>
      <Loaded polled={polled}>
        {(sessions) =>
          sessions.length === 0 ? (
            <p class="quiet">{t("account.no_sessions")}</p>
          ) : (
            <ul class="rows">
              {sessions.map((one) => (
                <li key={one.id} class="entry">
                  <div class="entry-main">
                    <h3>{agentOf(one.agent) || t("account.some_browser")}</h3>
                    <p class="facts">
                      {one.current && <span><strong>{t("account.this_one")}</strong></span>}
                      <span>{one.address}</span>
                      <span>{t("account.since", { time: ago(one.created_at, Date.now() / 1000) })}</span>
                      {one.expires_at !== null && <span>{t("account.until", { time: clock(one.expires_at) })}</span>}
                    </p>
                  </div>
                  {!one.current && (
                    <Button kind="danger" aria-label={t("account.end_name", { name: agentOf(one.agent) || one.id })} onClick={() => change(() => call("DELETE /v1/account/sessions/{session_id}", { path: { session_id: one.id } }))}>
                      {t("account.end")}
                    </Button>
                  )}
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
      {link.value !== null && <ShownOnce title={t("account.elsewhere")} about={t(person ? "account.elsewhere_about" : "account.elsewhere_short")} label="account.link" text={link.value} onClose={() => (link.value = null)} />}
    </section>
  );
}
