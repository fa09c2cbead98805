// Log in by an API key; the printed link logs in by itself.
import { useSignal } from "@preact/signals";
import { login } from "../../api/auth";
import { enterByKey } from "../../api/session";
import { explain } from "../../api/words";
import { t } from "../../i18n";
import { Button, Failed, Field } from "../../ui/controls";
import { Mark } from "../../ui/icons";

export function LoginView() {
  const key = useSignal("");
  const remember = useSignal(false);
  const busy = useSignal(false);
  const problem = useSignal<unknown>(null);
  const now = login.value;
  const why = now.state === "out" ? now.why : "none";
  const enter = async () => {
    if (key.value.trim() === "") return;
    busy.value = true;
    problem.value = null;
    try {
      await enterByKey(key.value.trim(), remember.value);
    } catch (err) {
      problem.value = err;
      busy.value = false;
    }
  };
  return (
    <div class="login">
      <form class="login-box" onSubmit={(event) => {
          event.preventDefault();
          void enter();
        }}>
        <Mark size={48} />
        <h1>{t("login.title")}</h1>
        <p class="quiet">{t("login.about")}</p>
        {why === "expired" && problem.value === null && <Failed words={t("login.expired")} />}
        {why === "refused_code" && problem.value === null && <Failed words={t("login.refused_code")} />}
        <Field label={t("login.key")} error={problem.value === null ? null : explain(problem.value)}>
          {(ids) => <input {...ids} type="password" autocomplete="off" spellcheck={false} placeholder="tk-…" value={key.value} onInput={(event) => (key.value = event.currentTarget.value)} />}
        </Field>
        <label class="tick">
          <input type="checkbox" checked={remember.value} onChange={(event) => (remember.value = event.currentTarget.checked)} />
          <span>
            {t("login.remember")}
            <small class="quiet block">{t("login.remember_about")}</small>
          </span>
        </label>
        <Button kind="primary" type="submit" class="wide" busy={busy.value}>
          {t("login.enter")}
        </Button>
        <p class="login-link">
          {t("login.link")} <code>turnout open</code>
        </p>
      </form>
    </div>
  );
}
