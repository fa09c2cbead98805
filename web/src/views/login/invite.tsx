// Come in by an invite: say a name, and be in. One that brings a person back asks for nothing.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, call } from "../../api/http";
import { enterByInvite } from "../../api/session";
import { mayEnter } from "../../api/site";
import type { InviteSeen } from "../../api/schema";
import { explain } from "../../api/words";
import { clock, t } from "../../i18n";
import { Button, Failed, Spinner } from "../../ui/controls";
import { TextField } from "../../ui/forms";
import { replace } from "../../ui/route";
import { AcceptTerms, Sign } from "../../ui/site";
import { Remember } from "./login";

export function InviteView({ token }: { token: string }) {
  const seen = useSignal<InviteSeen | null>(null);
  const problem = useSignal<unknown>(null);
  const busy = useSignal(false);
  const name = useSignal("");
  const email = useSignal("");
  const remember = useSignal(true);
  const look = async () => {
    problem.value = null;
    try {
      seen.value = await call("POST /v1/login/invite/look", { body: { invite: token } });
    } catch (err) {
      problem.value = err;
    }
  };
  useEffect(() => void look(), [token]);
  const known = seen.value?.name ?? null;
  const over = seen.value === null && problem.value instanceof ApiError && problem.value.code === "invalid_invite";
  const enter = async () => {
    if (!mayEnter()) return;
    busy.value = true;
    problem.value = null;
    try {
      await enterByInvite(token, known === null ? { name: name.value.trim(), email: email.value.trim() } : null, remember.value);
      replace("create");
    } catch (err) {
      problem.value = err;
      busy.value = false;
    }
  };
  return (
    <div class="login">
      <form class="login-box" onSubmit={(event) => {
          event.preventDefault();
          if (known !== null || name.value.trim() !== "") void enter();
        }}>
        <Sign size={48} />
        <h1>{over ? t("invite.over") : known === null ? t("invite.title") : t("invite.back", { name: known })}</h1>
        {seen.value === null && problem.value === null && <Spinner />}
        {seen.value === null && problem.value !== null && (
          <>
            {over ? <p class="quiet">{explain(problem.value)}</p> : <Failed words={explain(problem.value)} onRetry={() => void look()} />}
            <p class="login-link">
              <a href="#/create">{t("invite.elsewhere")}</a>
            </p>
          </>
        )}
        {seen.value !== null && (
          <>
            <p class="quiet">{t(known === null ? "invite.about" : "invite.back_about")}</p>
            {known === null && (
              <>
                <TextField label={t("person.name")} value={name} required maxLength={100} autocomplete="name" />
                <TextField label={t("invite.email")} value={email} type="email" maxLength={255} autocomplete="email" />
              </>
            )}
            <Remember value={remember} />
            <AcceptTerms />
            {problem.value !== null && <Failed words={explain(problem.value)} />}
            <Button kind="primary" type="submit" class="wide" busy={busy.value}>
              {t("invite.enter")}
            </Button>
            <p class="login-link">{t("invite.until", { time: clock(seen.value.expires_at) })}</p>
          </>
        )}
      </form>
    </div>
  );
}
