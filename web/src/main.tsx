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
import { login } from "./api/auth";
import { begin } from "./api/session";
import { App } from "./app";
import { beginLang } from "./i18n";
import { beginRoute, codeOf } from "./ui/route";
import { beginTheme } from "./ui/theme";
import { beginDraft } from "./views/create/composer";
import { beginDeleting } from "./views/library/deleting";

const RETRY_MS = 2_000;

beginTheme();
beginLang();
const code = codeOf(location.hash);
// The code works once; it must not stay in the address bar or the history.
if (code !== null) history.replaceState(null, "", "#/create");
beginRoute();
beginDraft();
beginDeleting();
render(<App />, document.getElementById("page")!);

async function enter(): Promise<void> {
  for (;;) {
    try {
      return await begin(code);
    } catch {
      if (login.peek().state !== "checking") return;
      login.value = { state: "checking", away: true };
      await new Promise((resume) => setTimeout(resume, RETRY_MS)); // the gateway is away
    }
  }
}

void enter();
