// What a click asks the gateway for.
import { useSignal, type Signal } from "@preact/signals";
import { explain } from "../api/words";
import { say } from "./toasts";

/** `act` does what it is given, with `busy` meanwhile; what goes wrong is said at the edge of the page. */
export function useAct(): { busy: Signal<boolean>; act: (what: () => Promise<unknown>) => Promise<void> } {
  const busy = useSignal(false);
  const act = async (what: () => Promise<unknown>) => {
    busy.value = true;
    try {
      await what();
    } catch (err) {
      say(explain(err), "bad");
    } finally {
      busy.value = false;
    }
  };
  return { busy, act };
}
