// The ways in: the issuer's button where the operator has one, a key, and the link that `turnout open` prints.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { login } from "../../api/auth";
import { call } from "../../api/http";
import { enterAsGuest, enterByKey } from "../../api/session";
import { acceptedTerms, accepted, mayEnter, siteName } from "../../api/site";
import type { GuestOffer, LoginWays } from "../../api/schema";
import { explain } from "../../api/words";
import { duration, t } from "../../i18n";
import { Button, Failed, Spinner } from "../../ui/controls";
import { TextField } from "../../ui/forms";
import { AcceptTerms, Sign } from "../../ui/site";

const KEYS_ONLY: LoginWays = { object: "login", oidc: null, guests: null };

export function LoginView() {
  const ways = useSignal<LoginWays | null>(null);
  const tried = useSignal(false);
  useEffect(() => {
    call("GET /v1/login", {}).then(
      (found) => (ways.value = found),
      () => (ways.value = KEYS_ONLY),
    );
  }, []);
  const now = login.value;
  const why = now.state === "out" ? now.why : "none";
  return (
    <div class="login">
      <div class="login-box">
        <Sign size={48} />
        <h1>{t("login.title", { name: siteName() })}</h1>
        <p class="quiet">{t("login.about")}</p>
        {why !== "none" && !tried.value && <Failed words={t(`login.${why}`)} />}
        {ways.value === null ? <Spinner /> : <Ways ways={ways.value} onTry={() => (tried.value = true)} />}
      </div>
    </div>
  );
}

function Ways({ ways, onTry }: { ways: LoginWays; onTry: () => void }) {
  if (ways.oidc === null && ways.guests === null) return <KeyForm onTry={onTry} />;
  return (
    <>
      <AcceptTerms />
      {ways.oidc !== null && (
        <a class="button button-primary wide" href={accepted.value ? `/v1/login/oidc?${new URLSearchParams(acceptedTerms())}` : "/v1/login/oidc"} onClick={(event) => {
            if (!mayEnter()) event.preventDefault();
          }}>
          {ways.oidc.name === "" ? t("login.sso") : t("login.sso_with", { name: ways.oidc.name })}
        </a>
      )}
      {ways.guests !== null && <AsGuest offer={ways.guests} main={ways.oidc === null} onTry={onTry} />}
      <details class="login-more">
        <summary>{t("login.with_key")}</summary>
        <KeyForm onTry={onTry} />
      </details>
    </>
  );
}

function AsGuest({ offer, main, onTry }: { offer: GuestOffer; main: boolean; onTry: () => void }) {
  const busy = useSignal(false);
  const problem = useSignal<unknown>(null);
  const enter = async () => {
    if (!mayEnter()) return;
    busy.value = true;
    problem.value = null;
    onTry();
    try {
      await enterAsGuest();
    } catch (err) {
      problem.value = err;
      busy.value = false;
    }
  };
  return (
    <div class="login-guest">
      <Button kind={main ? "primary" : "plain"} class="wide" busy={busy.value} onClick={() => void enter()}>
        {t("guest.enter")}
      </Button>
      <p class="quiet">{t("guest.about", { videos: offer.videos, chats: offer.chats, time: duration(offer.stays_s) })}</p>
      {problem.value !== null && <Failed words={explain(problem.value)} />}
    </div>
  );
}

function KeyForm({ onTry }: { onTry: () => void }) {
  const key = useSignal("");
  const remember = useSignal(false);
  const busy = useSignal(false);
  const problem = useSignal<unknown>(null);
  const enter = async () => {
    if (key.value.trim() === "") return;
    busy.value = true;
    problem.value = null;
    onTry();
    try {
      await enterByKey(key.value.trim(), remember.value);
    } catch (err) {
      problem.value = err;
      busy.value = false;
    }
  };
  return (
    <form class="login-key" onSubmit={(event) => {
        event.preventDefault();
        void enter();
      }}>
      <TextField label={t("login.key")} error={problem.value === null ? null : explain(problem.value)} value={key} type="password" autocomplete="off" spellcheck={false} placeholder="tk-…" />
      <Remember value={remember} />
      <Button kind="primary" type="submit" class="wide" busy={busy.value}>
        {t("login.enter")}
      </Button>
      <p class="login-link">
        {t("login.link")} <code>turnout open</code>
      </p>
    </form>
  );
}

export function Remember({ value }: { value: Signal<boolean> }) {
  return (
    <label class="tick">
      <input type="checkbox" checked={value.value} onChange={(event) => (value.value = event.currentTarget.checked)} />
      <span>
        {t("login.remember")}
        <small class="quiet block">{t("login.remember_about")}</small>
      </span>
    </label>
  );
}
