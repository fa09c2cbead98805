// A view or dialog that is loaded when it is looked at first.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { t } from "../i18n";
import { Failed, Spinner } from "./controls";

/** What is given beside `load` is the view's. */
export function Later<P extends object>({ load, ...props }: { load: () => Promise<{ default: ComponentType<P> }> } & P) {
  const loaded = useSignal<{ view: ComponentType<P> } | null>(null);
  const failed = useSignal(false);
  useEffect(() => {
    load().then(
      (module) => (loaded.value = { view: module.default }),
      () => (failed.value = true),
    );
  }, []);
  // A page from before an upgrade asks for files that are gone: only a reload helps.
  if (failed.value) return <Failed words={t("error.chunk")} onRetry={() => location.reload()} />;
  if (loaded.value === null)
    return (
      <div class="centre" aria-busy="true">
        <Spinner />
      </div>
    );
  const Loaded = loaded.value.view;
  return <Loaded {...(props as unknown as P)} />;
}
