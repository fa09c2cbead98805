// Fields that hold what is typed in a signal, and dialogs that send them.
import type { ComponentChildren, JSX } from "preact";
import { useSignal, type Signal } from "@preact/signals";
import type { Role } from "../api/schema";
import { explain } from "../api/words";
import { t, type Key } from "../i18n";
import { Button, Choice, Dialog, Failed, Field } from "./controls";
import { Copyable } from "./copyable";
import { Icon, type IconName } from "./icons";

type Input = Pick<JSX.IntrinsicElements["input"], "autocomplete" | "autoFocus" | "max" | "maxLength" | "min" | "placeholder" | "readOnly" | "required" | "spellcheck" | "step"> & { type?: "text" | "email" | "number" | "password" };

export function TextField({ label, hint, error = null, value, ...input }: { label: string; hint?: string; error?: string | null; value: Signal<string> } & Input) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(ids) => <input {...ids} {...(input as JSX.IntrinsicElements["input"])} value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} />}
    </Field>
  );
}

export function ChoiceField<T extends string>({ label, hint, value, options }: { label: string; hint?: string; value: Signal<T>; options: readonly { value: T; text: string }[] }) {
  return (
    <div class="field">
      <span class="field-label">{label}</span>
      <Choice label={label} value={value.value} onChange={(chosen) => (value.value = chosen)} options={options} />
      {hint && <p class="field-hint">{hint}</p>}
    </div>
  );
}

export const PERSON_ROLES = ["user", "admin"] as const;
export type PersonRole = (typeof PERSON_ROLES)[number];

/** What a person, or a key, may do. */
export function RoleField<R extends Role>({ roles, value }: { roles: readonly R[]; value: Signal<R> }) {
  return <ChoiceField label={t("keys.role")} hint={t(`role.about_${value.value}`)} value={value} options={roles.map((role) => ({ value: role, text: t(`role.${role}`) }))} />;
}

export function SearchField({ label, value, maxLength, onInput }: { label: string; value: string; maxLength: number; onInput: (words: string) => void }) {
  return (
    <label class="search">
      <span class="sr-only">{label}</span>
      <Icon name="search" size={18} />
      <input type="search" maxLength={maxLength} placeholder={label} value={value} onInput={(event) => onInput(event.currentTarget.value)} />
    </label>
  );
}

/** A dialog with fields. `send` closes it, or shows something else in its place; what goes wrong is said below the fields. */
export function FormDialog({ title, send, submit, icon, kind = "primary", ready = true, onClose, children }: { title: string; send: () => Promise<void>; submit: string; icon?: IconName; kind?: "primary" | "danger"; ready?: boolean; onClose: () => void; children: ComponentChildren }) {
  const busy = useSignal(false);
  const problem = useSignal<unknown>(null);
  const onSubmit = async () => {
    busy.value = true;
    problem.value = null;
    try {
      await send();
    } catch (err) {
      problem.value = err;
    } finally {
      busy.value = false;
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (ready) void onSubmit();
        }}
      >
        {children}
        {problem.value !== null && <Failed words={explain(problem.value)} />}
        <div class="row row-end">
          <Button onClick={onClose}>{t("cancel")}</Button>
          <Button kind={kind} type="submit" icon={icon} busy={busy.value} disabled={!ready}>
            {submit}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

/** A secret that is shown once. */
export function ShownOnce({ title, about, label, text, onClose }: { title: string; about: string; label: Key; text: string; onClose: () => void }) {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{about}</p>
      <Copyable label={label} text={text} />
      <div class="row row-end">
        <Button kind="primary" onClick={onClose}>
          {t("done")}
        </Button>
      </div>
    </Dialog>
  );
}
