// Settings under a name: the operator's, and one's own, which the gateway keeps. The dialog is loaded when it is opened first.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "../../api/http";
import { videoModels } from "../../api/models";
import type { PresetShown } from "../../api/schema";
import { explain } from "../../api/words";
import { t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Dialog, Failed, Field, IconButton, Spinner } from "../../ui/controls";
import { form, model, settingsOf, takePreset } from "./composer";

const MAX_NAME = 60;

export default function PresetsDialog({ onClose }: { onClose: () => void }) {
  const presets = useSignal<readonly PresetShown[] | null>(null);
  const problem = useSignal<unknown>(null);
  const name = useSignal("");
  const { busy, act } = useAct();
  const load = async () => {
    try {
      presets.value = (await call("GET /v1/presets", {})).data;
      problem.value = null;
    } catch (err) {
      problem.value = err;
    }
  };
  useEffect(() => void load(), []);
  const chosen = model.value;
  const change = (what: () => Promise<unknown>) => void act(() => what().then(load));
  const save = () => {
    if (chosen === null || name.value.trim() === "") return;
    change(async () => {
      await call("PUT /v1/presets/{name}", { path: { name: name.value.trim() }, body: settingsOf(form.value, chosen) });
      name.value = "";
    });
  };
  return (
    <Dialog title={t("presets.title")} onClose={onClose}>
      {problem.value !== null && <Failed words={explain(problem.value)} onRetry={() => void load()} />}
      {presets.value === null && problem.value === null && (
        <div class="centre" aria-busy="true">
          <Spinner />
        </div>
      )}
      {presets.value?.length === 0 && <p class="quiet">{t("presets.none")}</p>}
      <ul class="presets">
        {presets.value?.map((preset) => (
          <li key={`${preset.source}/${preset.name}`}>
            <button
              type="button"
              class="preset"
              disabled={preset.settings.model != null && !videoModels.value.some((one) => one.id === preset.settings.model)}
              onClick={() => {
                takePreset(preset);
                onClose();
              }}
            >
              <strong>{preset.name}</strong>
              <span class="facts">
                {preset.source === "operator" && <span>{t("presets.operators")}</span>}
                {factsOf(preset).map((fact) => (
                  <span key={fact}>{fact}</span>
                ))}
              </span>
            </button>
            {preset.source === "own" && <IconButton icon="trash" label={t("presets.delete", { name: preset.name })} onClick={() => change(() => call("DELETE /v1/presets/{name}", { path: { name: preset.name } }))} />}
          </li>
        ))}
      </ul>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <Field label={t("presets.save")} hint={t("presets.save_hint")}>
          {(ids) => (
            <div class="preset-new">
              <input {...ids} maxLength={MAX_NAME} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
              <Button type="submit" icon="plus" busy={busy.value}>
                {t("save")}
              </Button>
            </div>
          )}
        </Field>
      </form>
    </Dialog>
  );
}

function factsOf({ settings }: PresetShown): string[] {
  const { model: of, size, frames, steps, guidance, negative_prompt } = settings;
  return [of, size?.replace("x", " × "), frames != null ? t("presets.frames", { n: frames }) : null, steps != null ? t("presets.steps", { n: steps }) : null, guidance != null ? `${t("form.guidance")} ${guidance.join(", ")}` : null, negative_prompt].filter((fact): fact is string => !!fact);
}
