// What an owner says of a video: that it is a favourite, and tags.
import { useSignal } from "@preact/signals";
import type { Video } from "../api/schema";
import { explain } from "../api/words";
import { t } from "../i18n";
import { label } from "../tasks/store";
import { useAct } from "../ui/act";
import { Button, Dialog, IconButton } from "../ui/controls";
import { TextField } from "../ui/forms";

const MAX_TAGS_TYPED = 400;

export function Star({ video, class: more }: { video: Video; class?: string }) {
  const { busy, act } = useAct();
  const toggle = () => {
    if (!busy.peek()) void act(() => label(video.id, { favourite: !video.favourite }));
  };
  return <IconButton class={`star ${more ?? ""}`} icon="star" label={t("labels.favourite")} aria-pressed={video.favourite} onClick={toggle} />;
}

export function TagsDialog({ video, onClose }: { video: Video; onClose: () => void }) {
  const words = useSignal(video.tags.join(" "));
  const problem = useSignal<string | null>(null);
  const busy = useSignal(false);
  const save = async () => {
    busy.value = true;
    try {
      await label(video.id, { tags: words.value.split(/[\s,，、]+/).filter(Boolean) });
      onClose();
    } catch (err) {
      problem.value = explain(err);
      busy.value = false;
    }
  };
  return (
    <Dialog title={t("labels.tags")} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <TextField label={t("labels.words")} hint={t("labels.hint")} error={problem.value} value={words} autoFocus maxLength={MAX_TAGS_TYPED} />
        <div class="row row-end">
          <Button onClick={onClose}>{t("cancel")}</Button>
          <Button kind="primary" type="submit" busy={busy.value}>
            {t("save")}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
