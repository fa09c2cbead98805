// What is seen of whoever runs the service: the sign, the footer, the terms of use.
import { useSignal } from "@preact/signals";
import { useEffect, useId } from "preact/hooks";
import { call } from "../api/http";
import { accept, accepted, missed, site } from "../api/site";
import { explain } from "../api/words";
import { t } from "../i18n";
import { Dialog, Failed, Spinner } from "./controls";
import { Mark } from "./icons";

/** The operator's logo, or our own. It is decoration: the name stands beside it. */
export function Sign({ size = 28 }: { size?: number }) {
  const now = site.value;
  if (now === null) return <svg width={size} height={size} aria-hidden="true" />;
  if (now.logo === null) return <Mark size={size} />;
  return <img class="sign" src={now.logo} alt="" height={size} />;
}

export function SiteFooter() {
  const lines = site.value?.footer ?? [];
  const terms = site.value?.terms ?? null;
  if (lines.length === 0 && terms === null) return null;
  return (
    <footer class="site-footer">
      {lines.map((line) =>
        line.url === null ? (
          <span key={line.text}>{line.text}</span>
        ) : (
          <a key={line.text} href={line.url} target="_blank" rel="noopener noreferrer">
            {line.text}
          </a>
        ),
      )}
      {terms !== null && <TermsButton />}
    </footer>
  );
}

/** The tick without which nobody comes in, where there are terms of use. */
export function AcceptTerms() {
  const id = useId();
  useEffect(() => void (missed.value = false), []);
  if ((site.value?.terms ?? null) === null) return null;
  return (
    <div class="terms">
      <label class="tick">
        <input type="checkbox" checked={accepted.value} aria-invalid={missed.value || undefined} aria-describedby={missed.value ? id : undefined} onChange={(event) => accept(event.currentTarget.checked)} />
        <span>{t("terms.accept")}</span>
      </label>
      <TermsButton />
      {missed.value && (
        <p id={id} class="field-error" role="alert">
          {t("error.terms_needed")}
        </p>
      )}
    </div>
  );
}

function TermsButton() {
  const open = useSignal(false);
  return (
    <>
      <button type="button" class="link" onClick={() => (open.value = true)}>
        {t("terms.title")}
      </button>
      {open.value && <TermsDialog onClose={() => (open.value = false)} />}
    </>
  );
}

function TermsDialog({ onClose }: { onClose: () => void }) {
  const text = useSignal<string | null>(null);
  const problem = useSignal<unknown>(null);
  const load = async () => {
    problem.value = null;
    try {
      text.value = (await call("GET /v1/site/terms", {})).text;
    } catch (err) {
      problem.value = err;
    }
  };
  useEffect(() => void load(), []);
  return (
    <Dialog title={t("terms.title")} wide onClose={onClose}>
      {problem.value !== null ? <Failed words={explain(problem.value)} onRetry={() => void load()} /> : text.value === null ? <Spinner /> : <p class="terms-text" tabIndex={0}>{text.value}</p>}
    </Dialog>
  );
}
