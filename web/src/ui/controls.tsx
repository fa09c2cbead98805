// Buttons, fields and menus that every view uses.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useId, useRef, useState } from "preact/hooks";
import { t } from "../i18n";
import { Icon, type IconName } from "./icons";

type ButtonProps = {
  kind?: "primary" | "plain" | "quiet" | "danger";
  icon?: IconName;
  busy?: boolean;
  children?: ComponentChildren;
} & Omit<JSX.IntrinsicElements["button"], "icon" | "kind">;

export function Button({ kind = "plain", icon, busy = false, children, class: more, ...rest }: ButtonProps) {
  return (
    <button type="button" class={`button button-${kind} ${more ?? ""}`} aria-busy={busy || undefined} {...rest}>
      {busy ? <Spinner /> : icon && <Icon name={icon} size={18} />}
      {children}
    </button>
  );
}

/** A button whose icon says it all; the label is for everyone who cannot see it, and a tooltip for those who can. */
export function IconButton({ icon, label, class: more, ...rest }: { icon: IconName; label: string } & Omit<JSX.IntrinsicElements["button"], "icon" | "label">) {
  return (
    <button type="button" class={`icon-button ${more ?? ""}`} aria-label={label} title={label} {...rest}>
      <Icon name={icon} />
    </button>
  );
}

export function Spinner() {
  return <span class="spinner" aria-hidden="true" />;
}

export function Field({ label, aside, hint, error, wide = false, children }: { label: string; wide?: boolean; aside?: ComponentChildren; hint?: ComponentChildren; error?: string | null; children: (ids: { id: string; "aria-describedby": string | undefined; "aria-invalid": boolean | undefined }) => ComponentChildren }) {
  const id = useId();
  const about = error || hint ? `${id}-about` : undefined;
  return (
    <div class={wide ? "field field-wide" : "field"}>
      {aside ? (
        <div class="field-row">
          <label for={id}>{label}</label>
          {aside}
        </div>
      ) : (
        <label for={id}>{label}</label>
      )}
      {children({ id, "aria-describedby": about, "aria-invalid": error ? true : undefined })}
      {(error || hint) && (
        <p id={about} class={error ? "field-error" : "field-hint"}>
          {error || hint}
        </p>
      )}
    </div>
  );
}

/** One of a few: radio buttons that look like a switch. Arrow keys move as in any radio group. */
export function Choice<T extends string>({ label, value, options, onChange }: { label: string; value: T; options: readonly { value: T; text: string; title?: string }[]; onChange: (value: T) => void }) {
  const name = useId();
  return (
    <fieldset class="choice">
      <legend class="sr-only">{label}</legend>
      {options.map((option) => (
        <label key={option.value} title={option.title}>
          <input type="radio" name={name} value={option.value} checked={option.value === value} onChange={() => onChange(option.value)} />
          <span>{option.text}</span>
        </label>
      ))}
    </fieldset>
  );
}

export interface MenuItem {
  readonly icon: IconName;
  readonly text: string;
  readonly danger?: boolean;
  readonly onSelect: () => void;
}

/** A button with a menu: arrow keys, Home, End, Escape, and a click elsewhere closes it. */
export function Menu({ label, icon = "more", items, children }: { label: string; icon?: IconName; items: readonly MenuItem[]; children?: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    if (!open) return;
    const list = root.current?.querySelector<HTMLElement>("[role=menu]");
    // A dialog cuts off what reaches beyond it.
    const end = root.current?.closest("dialog")?.getBoundingClientRect().bottom ?? Infinity;
    if (list && list.getBoundingClientRect().bottom > end) list.classList.add("menu-up");
    root.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const away = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", away);
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);
  const onKey = (event: KeyboardEvent) => {
    const all = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const goTo = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (event.key === "Escape") {
      event.preventDefault(); // or a dialog around the menu would close, too
      event.stopPropagation();
      setOpen(false);
      button.current?.focus();
    } else if (event.key === "Tab") {
      setOpen(false);
    } else if (goTo !== undefined) {
      event.preventDefault();
      all[(goTo + all.length) % all.length]?.focus();
    }
  };
  return (
    <div class="menu" ref={root} onKeyDown={open ? onKey : undefined}>
      <button ref={button} type="button" class={children ? "button button-quiet" : "icon-button"} aria-haspopup="menu" aria-expanded={open} aria-controls={open ? id : undefined} aria-label={label} title={label} onClick={() => setOpen(!open)}>
        <Icon name={icon} size={children ? 18 : 20} />
        {children}
      </button>
      {open && (
        <div id={id} role="menu" aria-label={label} class="menu-list">
          {items.map((item) => (
            <button key={item.text} type="button" role="menuitem" tabIndex={-1} class={item.danger ? "menu-item danger" : "menu-item"} onClick={() => {
                setOpen(false);
                button.current?.focus();
                item.onSelect();
              }}>
              <Icon name={item.icon} size={18} />
              {item.text}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** A dialog of the browser's own: it holds the focus, Escape closes it, and the rest of the page is inert. */
export function Dialog({ title, wide = false, onClose, children }: { title: string; wide?: boolean; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class={wide ? "dialog dialog-wide" : "dialog"} aria-labelledby={id} onClose={onClose}>
      <div class="dialog-head">
        <h2 id={id}>{title}</h2>
        <IconButton icon="close" label={t("close")} onClick={() => dialog.current?.close()} />
      </div>
      {children}
    </dialog>
  );
}

export function Empty({ icon, title, children }: { icon: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <span class="empty-icon">
        <Icon name={icon} size={28} />
      </span>
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Failed({ words, onRetry }: { words: string; onRetry?: () => void }) {
  return (
    <div class="note note-bad" role="alert">
      <Icon name="warn" />
      <p>{words}</p>
      {onRetry && <Button onClick={onRetry}>{t("try_again")}</Button>}
    </div>
  );
}
