// The person's conversations: found, opened, renamed, deleted.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { ConversationListed } from "../../api/schema";
import { explain } from "../../api/words";
import { ago, t } from "../../i18n";
import { Failed, IconButton } from "../../ui/controls";
import { say } from "../../ui/toasts";
import { current, failed, kept, list, loadList, open, rename, search } from "./conversations";
import { deleteConversation } from "./talk";

const SEARCH_AFTER_MS = 250;

export function ConversationList({ onOpen }: { onOpen: () => void }) {
  const before = useRef(search.peek());
  useEffect(() => {
    if (before.current === search.value) return; // the view has asked already
    before.current = search.value;
    const timer = window.setTimeout(() => void loadList(), SEARCH_AFTER_MS);
    return () => window.clearTimeout(timer);
  }, [search.value]);
  return (
    <>
      {kept.value && (list.value.length > 3 || search.value !== "") && (
        <input type="search" aria-label={t("chat.search")} placeholder={t("chat.search")} value={search.value} onInput={(event) => (search.value = event.currentTarget.value)} />
      )}
      {failed.value !== null && list.value.length === 0 && <Failed words={explain(failed.value)} onRetry={() => void loadList()} />}
      <ul class="plain-list">
        {list.value.map((one) => (
          <Entry key={one.id} one={one} onOpen={onOpen} />
        ))}
        {list.value.length === 0 && search.value !== "" && failed.value === null && <li class="chat-none">{t("chat.none_found")}</li>}
      </ul>
      {kept.value === false && <p class="chat-private">{t("chat.not_kept")}</p>}
    </>
  );
}

function Entry({ one, onOpen }: { one: ConversationListed; onOpen: () => void }) {
  const naming = useSignal<string | null>(null);
  const isCurrent = one.id === current.value.id;
  const title = one.title || t("chat.untitled");
  const fail = (err: unknown) => say(explain(err));
  if (naming.value !== null)
    return (
      <li>
        <form class="chat-naming" onSubmit={(event) => {
            event.preventDefault();
            const name = naming.value?.trim() ?? "";
            naming.value = null;
            if (name !== "" && name !== one.title) rename(one.id, name).catch(fail);
          }}>
          <input autoFocus ref={(box) => box?.select()} aria-label={t("chat.rename", { title })} maxLength={200} value={naming.value} onInput={(event) => (naming.value = event.currentTarget.value)} onBlur={() => (naming.value = null)} onKeyDown={(event) => {
              if (event.key === "Escape") naming.value = null;
            }} />
        </form>
      </li>
    );
  return (
    <li class={isCurrent ? "current" : ""}>
      <button type="button" class="chat-title" aria-current={isCurrent ? "true" : undefined} onClick={() => {
          void open(one.id);
          onOpen();
        }}>
        <span>{title}</span>
        <small>{ago(one.updated_at, Date.now() / 1000)}</small>
      </button>
      <IconButton icon="edit" label={t("chat.rename", { title })} onClick={() => (naming.value = title)} />
      <IconButton icon="trash" label={t("chat.delete", { title })} onClick={() => void deleteConversation(one.id).catch(fail)} />
    </li>
  );
}
