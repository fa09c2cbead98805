// Models: how each stands; wake, stop, register, remove.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { loadModels, models, modelsFailed, type Model } from "../../api/models";
import type { ModelState } from "../../api/schema";
import { duration, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Dialog, Empty } from "../../ui/controls";
import { say } from "../../ui/toasts";
import { Loaded, usePolled } from "../../ui/polled";
import { PullDialog, Pulls } from "./pulls";
import { RegisterDialog } from "./register";

/** States without a cause of which the gateway's own sentence says more than the word. */
const TOLD: readonly ModelState[] = ["starting", "waiting", "stopping", "failed"];

export function ModelsTab() {
  const registering = useSignal(false);
  const removing = useSignal<string | null>(null);
  const pulling = useSignal(false);
  const pulls = usePolled(() => call("GET /v1/pulls", {}), 1_500);
  const polled = { value: models.value, problem: modelsFailed.value, again: () => void loadModels() };
  return (
    <section aria-labelledby="models-title">
      <div class="row row-spread">
        <h2 id="models-title">{t("operate.models")}</h2>
        <div class="row">
          <Button icon="download" onClick={() => (pulling.value = true)}>
            {t("pulls.open")}
          </Button>
          <Button kind="primary" icon="plus" onClick={() => (registering.value = true)}>
            {t("models.register")}
          </Button>
        </div>
      </div>
      <Pulls polled={pulls} />
      <Loaded polled={polled}>
        {(all) =>
          all.length === 0 ? (
            <Empty icon="bolt" title={t("models.none")} />
          ) : (
            <ul class="rows">
              {all.map((model) => (
                <Row key={model.id} model={model} onRemove={() => (removing.value = model.id)} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {pulling.value && <PullDialog pulls={pulls} onClose={() => (pulling.value = false)} />}
      {registering.value && <RegisterDialog onClose={() => (registering.value = false)} />}
      {removing.value !== null && <RemoveDialog name={removing.value} onClose={() => (removing.value = null)} />}
    </section>
  );
}

function Row({ model, onRemove }: { model: Model; onRemove: () => void }) {
  const state = model.state;
  const { busy, act } = useAct();
  const order = (what: "wake" | "stop") =>
    act(async () => {
      await (what === "wake" ? call("POST /v1/models/{name}/wake", { path: { name: model.id } }) : call("POST /v1/models/{name}/stop", { path: { name: model.id } }));
      await loadModels();
    });
  const awake = state === "ready" || state === "starting";
  return (
    <li class="entry">
      <div class="entry-main">
        <h3>{model.id}</h3>
        <p>
          <span class="state" data-state={state}>
            {t(`state.${state}`)}
          </span>
          {model.cause != null && <span class="quiet">{t(`cause.${model.cause}`)}</span>}
          {model.cause == null && TOLD.includes(state) && (
            <span class="quiet" lang="en">
              {model.status}
            </span>
          )}
        </p>
        <p class="facts">
          <span>{t(model.kind === "video" ? "models.video" : "models.chat")}</span>
          <span>{t(`engine.${model.engine}`)}</span>
          <span>{model.model_name}</span>
          <span>{t("models.replicas", { n: model.replicas, min: model.min_replicas, max: model.max_replicas })}</span>
          <span>{model.idle_left_s === null ? t("models.idle", { time: duration(model.idle_s) }) : t("models.idle_left", { time: duration(model.idle_left_s) })}</span>
          {model.wake_s !== null && <span>{t("models.wakes", { time: duration(model.wake_s) })}</span>}
          {model.version_of && <span>{t("models.version", { share: `${Math.round(model.share * 1000) / 10} %`, name: model.version_of })}</span>}
          {model.kind === "video" && <span>{t("models.ranks", { n: model.ranks })}</span>}
        </p>
      </div>
      <div class="entry-actions">
        {awake ? (
          <Button icon="moon" busy={busy.value} onClick={() => void order("stop")}>
            {t("models.stop")}
          </Button>
        ) : (
          <Button icon="bolt" busy={busy.value} onClick={() => void order("wake")}>
            {t("models.wake")}
          </Button>
        )}
        <Button kind="danger" icon="trash" aria-label={t("models.remove_name", { name: model.id })} onClick={onRemove}>
          {t("models.remove")}
        </Button>
      </div>
    </li>
  );
}

function RemoveDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const { busy, act } = useAct();
  const remove = async () => {
    await act(async () => {
      await call("DELETE /v1/models/{name}", { path: { name } });
      await loadModels();
      say(t("models.removed", { name }));
    });
    onClose();
  };
  return (
    <Dialog title={t("models.remove_title", { name })} onClose={onClose}>
      <p>{t("models.remove_about")}</p>
      <div class="row row-end">
        <Button onClick={onClose}>{t("cancel")}</Button>
        <Button kind="danger" icon="trash" busy={busy.value} onClick={() => void remove()}>
          {t("models.remove")}
        </Button>
      </div>
    </Dialog>
  );
}
