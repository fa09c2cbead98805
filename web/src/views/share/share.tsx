// One shared video, for whoever has the link. The token stands in the fragment, so no server's log sees it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call, open } from "../../api/http";
import { download } from "../../api/media";
import type { SharedVideo } from "../../api/schema";
import { siteName } from "../../api/site";
import { explain } from "../../api/words";
import { clock, t } from "../../i18n";
import { Button, Spinner } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { Sign } from "../../ui/site";
import { readSize } from "../create/rules";

const TOKEN = "X-Turnout-Share";

export function ShareView({ token }: { token: string }) {
  const shared = useSignal<SharedVideo | null>(null);
  const url = useSignal<string | null>(null);
  const problem = useSignal<unknown>(null);
  useEffect(() => {
    let made: string | null = null;
    const load = async () => {
      try {
        const headers = { [TOKEN]: token };
        shared.value = await call("GET /v1/shared", { headers });
        const answer = await open("/v1/shared/content", { headers, signal: AbortSignal.timeout(120_000) });
        made = URL.createObjectURL(await answer.blob());
        url.value = made;
      } catch (err) {
        problem.value = err;
      }
    };
    void load();
    return () => {
      if (made !== null) URL.revokeObjectURL(made);
    };
  }, [token]);
  const { width, height } = readSize(shared.value?.size ?? "16x9");
  return (
    <div class="shared">
      <header>
        <Sign />
        <span>{t("share.page", { name: siteName() })}</span>
      </header>
      {problem.value !== null ? (
        <div class="empty" role="alert">
          <span class="empty-icon">
            <Icon name="share" size={28} />
          </span>
          <h1 class="empty-title">{explain(problem.value)}</h1>
          <p>{t("share.over_hint")}</p>
        </div>
      ) : (
        <figure>
          <div class="card-picture" style={{ aspectRatio: `${width} / ${height}` }}>
            {url.value !== null ? <video src={url.value} aria-label={shared.value?.prompt} controls loop muted playsInline autoplay={!matchMedia("(prefers-reduced-motion: reduce)").matches} /> : <span class="card-blank"><Spinner /></span>}
          </div>
          {shared.value !== null && (
            <figcaption>
              <h1>{shared.value.prompt}</h1>
              <p class="quiet">{t("share.until", { time: clock(shared.value.expires_at) })}</p>
              {url.value !== null && (
                <Button icon="download" onClick={() => download(url.value!, "video.mp4")}>
                  {t("card.download")}
                </Button>
              )}
            </figcaption>
          )}
        </figure>
      )}
    </div>
  );
}
