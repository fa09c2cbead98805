// Models from a hub: the catalogue, a verdict before, and how far each pull is. The service pulls; the page only looks.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../../api/http";
import { models } from "../../api/models";
import type { CatalogueEntry, Operations, PullList, PullShown, PullVerdict } from "../../api/schema";
import { explain, explainPull, explainVerdict } from "../../api/words";
import { lang, number, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Choice, Dialog, Failed, Field, IconButton, Spinner } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import type { Polled } from "../../ui/polled";
import { register, type Registration } from "./register";

type Wish = Operations["POST /v1/pulls"]["body"];
type Hub = NonNullable<Wish["hub"]>;
const HUBS: readonly { value: Hub; text: string }[] = [
  { value: "huggingface", text: "Hugging Face" },
  { value: "modelscope", text: "ModelScope" },
];
const CHECK_MS = 130_000;

function size(bytes: number): string {
  return bytes >= 1e9 ? `${number(bytes / 1e9, 1)} GB` : `${number(bytes / 1e6, 1)} MB`;
}

export function Pulls({ polled }: { polled: Polled<PullList> }) {
  const pulls = polled.value?.data ?? [];
  if (pulls.length === 0) return null;
  return (
    <section aria-labelledby="pulls-title">
      <h3 id="pulls-title">{t("pulls.title")}</h3>
      <ul class="rows">
        {pulls.map((pull) => (
          <Row key={pull.id} pull={pull} onChange={polled.again} />
        ))}
      </ul>
    </section>
  );
}

function Row({ pull, onChange }: { pull: PullShown; onChange: () => void }) {
  const { busy, act } = useAct();
  const change = (what: () => Promise<unknown>) => void act(() => what().then(onChange));
  const going = pull.state === "waiting" || pull.state === "running";
  const name = pull.name ?? pull.repo;
  const registration = pull.register_as as Registration | null;
  return (
    <li class="entry">
      <div class="entry-main">
        <h4>{name}</h4>
        <p>
          <span class="state" data-state={pull.state === "completed" ? "ready" : going ? "starting" : pull.state === "failed" ? "failed" : "asleep"}>
            {t(`pulls.${pull.state}`)}
          </span>
          <Reason pull={pull} />
        </p>
        {going && pull.of > 0 && <progress max={pull.of} value={pull.bytes} aria-label={t("pulls.progress", { repo: name })} />}
        <p class="facts">
          <span>{pull.repo}</span>
          <span>{HUBS.find((hub) => hub.value === pull.hub)?.text ?? pull.hub}</span>
          {pull.of > 0 && <span>{t("pulls.of", { bytes: size(pull.bytes), of: size(pull.of) })}</span>}
          {pull.state === "completed" && <span>{pull.folder}</span>}
        </p>
      </div>
      <div class="entry-actions">
        {going && (
          <Button icon="stop" busy={busy.value} aria-label={t("pulls.cancel", { repo: name })} onClick={() => change(() => call("DELETE /v1/pulls/{pull_id}", { path: { pull_id: pull.id } }))}>
            {t("cancel")}
          </Button>
        )}
        {(pull.state === "failed" || pull.state === "cancelled") && (
          <Button icon="retry" busy={busy.value} aria-label={t("pulls.again_name", { repo: name })} onClick={() => change(() => call("POST /v1/pulls", { body: { repo: pull.repo, hub: pull.hub as Hub } }))}>
            {t("pulls.again")}
          </Button>
        )}
        {pull.state === "completed" && registration !== null && !models.value?.some((one) => one.id === pull.name) && (
          <Button icon="plus" kind="primary" busy={busy.value} onClick={() => change(() => register(registration, name))}>
            {t("pulls.register")}
          </Button>
        )}
        {!going && <IconButton icon="close" label={t("pulls.forget", { repo: name })} onClick={() => change(() => call("DELETE /v1/pulls/{pull_id}", { path: { pull_id: pull.id } }))} />}
      </div>
    </li>
  );
}

function Reason({ pull }: { pull: PullShown }) {
  if (pull.reason === "") return null;
  const known = explainPull(pull.reason_code);
  if (known !== null) return <span class="quiet">{known}</span>;
  return (
    <span class="quiet" lang="en">
      {pull.reason}
    </span>
  );
}

export function PullDialog({ pulls, onClose }: { pulls: Polled<PullList>; onClose: () => void }) {
  const catalogue = useSignal<readonly CatalogueEntry[]>([]);
  const hub = useSignal<Hub>(lang.peek() === "zh" ? "modelscope" : "huggingface");
  const repo = useSignal("");
  const wish = useSignal<Wish | null>(null);
  const problem = useSignal<unknown>(null);
  useEffect(() => {
    call("GET /v1/catalogue", {}).then(
      (answer) => (catalogue.value = answer.data),
      (err: unknown) => (problem.value = err),
    );
  }, []);
  if (pulls.value?.offered === false)
    return (
      <Dialog title={t("pulls.open")} onClose={onClose}>
        <p>{t("pulls.not_here")}</p>
      </Dialog>
    );
  return (
    <Dialog title={t("pulls.open")} wide onClose={onClose}>
      {problem.value !== null && <Failed words={explain(problem.value)} />}
      {wish.value !== null ? (
        <Verdict
          wish={wish.value}
          onBack={() => (wish.value = null)}
          onStarted={() => {
            pulls.again();
            onClose();
          }}
        />
      ) : (
        <>
          <p class="quiet">{t("pulls.where")}</p>
          <Choice label={t("pulls.hub")} value={hub.value} onChange={(value) => (hub.value = value)} options={HUBS} />
          <h3>{t("pulls.catalogue")}</h3>
          <ul class="presets">
            {catalogue.value.map((one) => (
              <li key={one.name}>
                <button type="button" class="preset" onClick={() => (wish.value = { name: one.name, hub: hub.value })}>
                  <strong>{one.name}</strong>
                  <span>{one.about[lang.value] ?? one.about.en}</span>
                  <span class="facts">
                    <span>{one.repo}</span>
                    <span>{size(one.gigabytes * 1e9)}</span>
                    {one.vision && <span>{t("pulls.sees")}</span>}
                  </span>
                </button>
              </li>
            ))}
          </ul>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              if (repo.value.trim() !== "") wish.value = { repo: repo.value.trim(), hub: hub.value };
            }}
          >
            <Field label={t("pulls.repo")}>
              {(ids) => (
                <div class="preset-new">
                  <input {...ids} maxLength={193} value={repo.value} onInput={(event) => (repo.value = event.currentTarget.value)} />
                  <Button type="submit">{t("pulls.check")}</Button>
                </div>
              )}
            </Field>
          </form>
        </>
      )}
    </Dialog>
  );
}

/** What `turnout models check` says, before anything is pulled. */
function Verdict({ wish, onBack, onStarted }: { wish: Wish; onBack: () => void; onStarted: () => void }) {
  const verdict = useSignal<PullVerdict | null>(null);
  const problem = useSignal<unknown>(null);
  const busy = useSignal(false);
  useEffect(() => {
    const stop = new AbortController();
    call("POST /v1/pulls/check", { body: wish, signal: stop.signal, patienceMs: CHECK_MS }).then(
      (answer) => (verdict.value = answer),
      (err: unknown) => {
        if (!stop.signal.aborted) problem.value = err;
      },
    );
    return () => stop.abort();
  }, []);
  const start = async () => {
    busy.value = true;
    try {
      await call("POST /v1/pulls", { body: wish });
      onStarted();
    } catch (err) {
      problem.value = err;
      busy.value = false;
    }
  };
  const said = verdict.value;
  const full = said !== null && said.download_bytes > said.free_bytes;
  return (
    <>
      <h3>{wish.name ?? wish.repo}</h3>
      {problem.value !== null && <Failed words={explain(problem.value)} />}
      {said === null && problem.value === null && (
        <p class="row" role="status">
          <Spinner />
          {t("pulls.checking")}
        </p>
      )}
      {said !== null && (
        <div class={said.fits === false || full ? "note note-bad" : "note"} role="status">
          <Icon name={said.fits === false || full ? "warn" : "check"} />
          <p>
            <strong>{t(said.fits === null ? "pulls.fits_unknown" : said.fits ? "pulls.fits" : "pulls.fits_not")}</strong>
            {explainVerdict(said.parts).map((line) => (
              <span key={line} class="block">
                {line}
              </span>
            ))}
            <span class="block">{t(full ? "pulls.disk_full" : "pulls.disk", { size: size(said.download_bytes), free: size(said.free_bytes) })}</span>
          </p>
        </div>
      )}
      <div class="row row-end">
        <Button onClick={onBack}>{t("back")}</Button>
        {said !== null && !full && (
          <Button kind="primary" icon="download" busy={busy.value} onClick={() => void start()}>
            {t("pulls.start")}
          </Button>
        )}
      </div>
    </>
  );
}
