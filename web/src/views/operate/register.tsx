// The form that registers a model: the fields that the chosen engine knows, and no others.
import { useSignal } from "@preact/signals";
import { ApiError, call } from "../../api/http";
import { loadModels } from "../../api/models";
import type { Operations } from "../../api/schema";
import { explain } from "../../api/words";
import { t, type Key } from "../../i18n";
import { Button, Choice, Dialog, Failed, Field } from "../../ui/controls";
import { TextField } from "../../ui/forms";
import { say } from "../../ui/toasts";

export type Registration = Operations["POST /v1/models/register"]["body"];
type Engine = NonNullable<Registration["engine"]>;

interface Spec {
  readonly name: keyof Registration;
  readonly label: Key;
  readonly type: "text" | "int" | "number" | "GiB" | "bool" | "list" | "family";
  readonly engines: readonly Engine[];
  readonly placeholder?: string;
}

const ALL: readonly Engine[] = ["vllm", "llamacpp", "wan", "command"];
const SERVERS: readonly Engine[] = ["vllm", "llamacpp", "command"];
const FAMILIES = ["wan2.2-t2v-a14b", "wan2.2-i2v-a14b", "wan2.2-ti2v-5b", "wan-tiny-t2v", "wan-tiny-ti2v"];

export const FIELDS: readonly Spec[] = [
  { name: "family", label: "register.family", type: "family", engines: ["wan"] },
  { name: "gpus", label: "register.gpus", type: "int", engines: ALL },
  { name: "gpu_memory_bytes", label: "register.gpu_memory", type: "GiB", engines: ALL },
  { name: "memory_bytes", label: "register.memory", type: "GiB", engines: ALL },
  { name: "min_replicas", label: "register.min_replicas", type: "int", engines: ALL, placeholder: "0" },
  { name: "max_replicas", label: "register.max_replicas", type: "int", engines: ALL, placeholder: "1" },
  { name: "idle_s", label: "register.idle", type: "number", engines: ALL, placeholder: "300" },
  { name: "load_timeout_s", label: "register.load_timeout", type: "number", engines: ALL, placeholder: "600" },
  { name: "concurrency", label: "register.concurrency", type: "int", engines: SERVERS, placeholder: "64" },
  { name: "max_model_len", label: "register.max_model_len", type: "int", engines: ["vllm"] },
  { name: "gpu_memory_utilization", label: "register.utilization", type: "number", engines: ["vllm"], placeholder: "0.9" },
  { name: "tensor_parallel_size", label: "register.tensor_parallel", type: "int", engines: ["vllm"], placeholder: "1" },
  { name: "dtype", label: "register.dtype", type: "text", engines: ["vllm", "wan"], placeholder: "auto" },
  { name: "quantization", label: "register.quantization", type: "text", engines: ["vllm"] },
  { name: "sleep", label: "register.sleep", type: "bool", engines: ["vllm"] },
  { name: "ulysses", label: "register.ulysses", type: "int", engines: ["wan"], placeholder: "1" },
  { name: "cfg", label: "register.cfg", type: "int", engines: ["wan"], placeholder: "1" },
  { name: "fsdp", label: "register.fsdp", type: "bool", engines: ["wan"] },
  { name: "device", label: "register.device", type: "text", engines: ["wan"], placeholder: "cpu" },
  { name: "arguments", label: "register.arguments", type: "list", engines: ["vllm", "llamacpp"] },
  { name: "command", label: "register.command", type: "list", engines: ["command"] },
];

const GIB = 2 ** 30;

/** The body for what was typed; fields left empty are the gateway's defaults. */
export function registrationOf(engine: Engine, alias: string, weights: string, typed: Readonly<Record<string, string>>): Registration {
  const body: Record<string, unknown> = { alias: alias.trim(), engine, model_name: weights.trim() };
  for (const field of FIELDS) {
    const text = (typed[field.name] ?? "").trim();
    if (text === "" || !field.engines.includes(engine)) continue;
    switch (field.type) {
      case "int":
      case "number":
        body[field.name] = readable(text, Number(text));
        break;
      case "GiB":
        body[field.name] = readable(text, Math.round(Number(text) * GIB));
        break;
      case "bool":
        body[field.name] = text === "yes";
        break;
      case "list":
        body[field.name] = text.split("\n").map((line) => line.trim()).filter(Boolean);
        break;
      default:
        body[field.name] = text;
    }
  }
  return body as Registration;
}

/** What is no number goes as it was typed, for the gateway to refuse by its field: JSON would make "nothing" of it. */
function readable(text: string, amount: number): number | string {
  return Number.isFinite(amount) ? amount : text;
}

const NOTICE_MS = 20_000;

/** Registers a model, and says so; also why no worker can run it now, if none can. */
export async function register(body: Registration, name: string): Promise<void> {
  const made = await call("POST /v1/models/register", { body });
  await loadModels();
  if (made.notice) say(t("models.registered_but", { name, why: made.notice }), "bad", null, NOTICE_MS);
  else say(t("models.registered", { name }));
}

export function RegisterDialog({ onClose }: { onClose: () => void }) {
  const engine = useSignal<Engine>("vllm");
  const alias = useSignal("");
  const weights = useSignal("");
  const typed = useSignal<Readonly<Record<string, string>>>({});
  const problem = useSignal<unknown>(null);
  const busy = useSignal(false);
  const errorOf = (name: string) => {
    if (!(problem.value instanceof ApiError) || problem.value.param !== name) return null;
    return name === "alias" ? t("register.alias_bad") : explain(problem.value);
  };
  const fields = FIELDS.filter((field) => field.engines.includes(engine.value));
  const elsewhere = problem.value !== null && !(problem.value instanceof ApiError && ["alias", "model_name", ...fields.map((f) => f.name as string)].includes(problem.value.param ?? ""));
  const submit = async () => {
    busy.value = true;
    try {
      await register(registrationOf(engine.value, alias.value, weights.value, typed.value), alias.value);
      onClose();
    } catch (err) {
      problem.value = err;
    } finally {
      busy.value = false;
    }
  };
  return (
    <Dialog title={t("models.register")} onClose={onClose}>
      <form class="register" noValidate onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}>
        <Choice label={t("register.engine")} value={engine.value} onChange={(value) => (engine.value = value)} options={ALL.map((value) => ({ value, text: t(`engine.${value}`) }))} />
        <p class="field-hint">{t(`register.about_${engine.value}`)}</p>
        <div class="drawer-grid">
          <TextField label={t("register.alias")} hint={t("register.alias_hint")} error={errorOf("alias")} value={alias} required autocomplete="off" spellcheck={false} />
          <TextField label={t("register.weights")} hint={t(`register.weights_${engine.value}`)} error={errorOf("model_name")} value={weights} required autocomplete="off" spellcheck={false} />
        </div>
        <div class="drawer-grid">
          {fields.map((field) => (
            <Field key={field.name} label={t(field.label)} wide={field.type === "list"} error={errorOf(field.name)}>
              {(ids) => <Input ids={ids} field={field} value={typed.value[field.name] ?? ""} onInput={(value) => (typed.value = { ...typed.value, [field.name]: value })} />}
            </Field>
          ))}
        </div>
        {elsewhere && <Failed words={explain(problem.value)} />}
        <div class="row row-end">
          <Button onClick={onClose}>{t("cancel")}</Button>
          <Button kind="primary" type="submit" busy={busy.value}>
            {t("models.register")}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function Input({ ids, field, value, onInput }: { ids: object; field: Spec; value: string; onInput: (value: string) => void }) {
  if (field.type === "list") return <textarea {...ids} rows={2} spellcheck={false} value={value} onInput={(event) => onInput(event.currentTarget.value)} />;
  if (field.type === "bool" || field.type === "family")
    return (
      <select {...ids} value={value} onChange={(event) => onInput(event.currentTarget.value)}>
        {field.type === "bool" ? (
          <>
            <option value="">{t("no")}</option>
            <option value="yes">{t("yes")}</option>
          </>
        ) : (
          <>
            <option value="">{t("register.choose")}</option>
            {FAMILIES.map((family) => (
              <option key={family} value={family}>
                {family}
              </option>
            ))}
          </>
        )}
      </select>
    );
  return <input {...ids} inputMode={field.type === "text" ? "text" : "decimal"} autocomplete="off" spellcheck={false} placeholder={field.placeholder} value={value} onInput={(event) => onInput(event.currentTarget.value)} />;
}
