// Starts the page.
import { render } from "preact";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/controls.css";
import "./styles/shell.css";
import "./styles/card.css";
import "./styles/create.css";
import "./styles/library.css";
import "./styles/chat.css";
import "./styles/operate.css";
import "./styles/login.css";
import "uplot/dist/uPlot.min.css";
import { login, type Why } from "./api/auth";
import { begin } from "./api/session";
import { loadSite } from "./api/site";
import { App } from "./app";
import { beginLang } from "./i18n";
import { beginRoute, codeOf, whyOf } from "./ui/route";
import { beginTheme } from "./ui/theme";
import { beginDraft } from "./views/create/composer";
import { beginDeleting } from "./views/library/deleting";

const RETRY_MS = 2_000;

/** The code of a login link, taken out of the address bar and the history: it works once. */
function takeCode(): string | null {
  const code = codeOf(location.hash);
  if (code !== null) history.replaceState(null, "", "#/create");
  return code;
}

async function enter(code: string | null, why: Why): Promise<void> {
  for (;;) {
    try {
      await loadSite();
      return await begin(code, why);
    } catch {
      if (login.peek().state !== "checking") return;
      login.value = { state: "checking", away: true };
      await new Promise((resume) => setTimeout(resume, RETRY_MS)); // the gateway is away
    }
  }
}

beginTheme();
beginLang();
const why = whyOf(location.hash) ?? "none";
if (why !== "none") history.replaceState(null, "", "#/create");
const code = takeCode();
// A link that is pasted into an open tab reloads nothing.
window.addEventListener("hashchange", () => {
  const pasted = takeCode();
  if (pasted === null) return;
  login.value = { state: "checking", away: false };
  void enter(pasted, "none");
});
beginRoute();
beginDraft();
beginDeleting();
render(<App />, document.getElementById("page")!);
void enter(code, why);
