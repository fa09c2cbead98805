// The frame around the views: navigation, language, theme, the connection, and what is said aloud.
import { Component, type ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { isGuest, login, type Person } from "./api/auth";
import { startModels, stopModels } from "./api/models";
import { leave } from "./api/session";
import { siteName } from "./api/site";
import { lang, setLang, t, type Key } from "./i18n";
import { connection } from "./tasks/socket";
import { announced, reconnect, start, stop } from "./tasks/store";
import { Button, Failed, IconButton, Menu, Spinner, type MenuItem } from "./ui/controls";
import { Icon, type IconName } from "./ui/icons";
import { Later } from "./ui/later";
import { go, route, type View } from "./ui/route";
import { Sign, SiteFooter } from "./ui/site";
import { setTheme, theme, type Theme } from "./ui/theme";
import { Toasts } from "./ui/toasts";
import { CreateView } from "./views/create/create";
import { LibraryView } from "./views/library/library";
import { InviteView } from "./views/login/invite";
import { LoginView } from "./views/login/login";
import { ShareView } from "./views/share/share";

const NAV: readonly { view: View; icon: IconName; name: Key; admin: boolean }[] = [
  { view: "create", icon: "create", name: "nav.create", admin: false },
  { view: "library", icon: "library", name: "nav.library", admin: false },
  { view: "chat", icon: "chat", name: "nav.chat", admin: false },
  { view: "operate", icon: "operate", name: "nav.operate", admin: true },
];
const NEXT_THEME: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const THEME_ICONS: Record<Theme, IconName> = { system: "auto", light: "sun", dark: "moon" };
const THEME_NAMES: Record<Theme, Key> = { system: "theme.system", light: "theme.light", dark: "theme.dark" };

/** What goes wrong in a view is said in its place; the rest of the page stays. */
class Boundary extends Component<{ children: ComponentChildren }, { broken: boolean }> {
  override state = { broken: false };

  static override getDerivedStateFromError(): { broken: boolean } {
    return { broken: true };
  }

  override render() {
    if (this.state.broken) return <Failed words={t("error.view")} onRetry={() => location.reload()} />;
    return this.props.children;
  }
}

export function App() {
  const now = login.value;
  const { view, rest } = route.value;
  if (view === "share")
    return (
      <Frame>
        <ShareView token={rest[0] ?? ""} />
      </Frame>
    );
  if (view === "invite")
    return (
      <Frame>
        <InviteView key={rest[0]} token={rest[0] ?? ""} />
      </Frame>
    );
  if (now.state === "checking")
    return (
      <main class="centre" aria-busy="true">
        <div class="checking">
          <Sign size={48} />
          <Spinner />
          <p role="status">{t(now.away ? "error.away" : "loading")}</p>
        </div>
      </main>
    );
  if (now.state === "out")
    return (
      <Frame>
        <LoginView />
      </Frame>
    );
  return <Inside key={now.person.tenant} person={now.person} />;
}

/** For views that need no login. */
function Frame({ children }: { children: ComponentChildren }) {
  return (
    <div class="frame">
      <div class="corner">
        <Preferences />
      </div>
      <main id="main">{children}</main>
      <SiteFooter />
      <Toasts />
    </div>
  );
}

function Inside({ person }: { person: Person }) {
  const { view } = route.value;
  const admin = person.role === "admin";
  const shown = view === "operate" && !admin ? "create" : view;
  useEffect(() => {
    start();
    startModels();
    return () => {
      stop();
      stopModels();
    };
  }, []);
  const name = shown === "account" ? "nav.account" : (NAV.find((one) => one.view === shown)?.name ?? "nav.create");
  useEffect(() => {
    document.title = `${t(name)} · ${siteName()}`;
  }, [name, lang.value]);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}>
        {t("nav.skip")}
      </a>
      <header class="side">
        <a class="brand" href="#/create">
          <Sign />
          <span>{siteName()}</span>
        </a>
        <nav aria-label={t("nav.label")}>
          {NAV.filter((one) => !one.admin || admin).map((one) => (
            <a key={one.view} href={`#/${one.view}`} aria-current={one.view === shown ? "page" : undefined}>
              <Icon name={one.icon} />
              <span>{t(one.name)}</span>
            </a>
          ))}
        </nav>
        <div class="side-end">
          <Connection />
          <a class="me" href="#/account" aria-current={shown === "account" ? "page" : undefined}>
            <Icon name="person" />
            <span>{person.person === null ? t("nav.account") : isGuest(person) ? t("guest.name") : person.name}</span>
          </a>
          <Preferences />
          <IconButton icon="out" label={t("nav.log_out")} onClick={() => void leave()} />
        </div>
        <div class="side-menu">
          <Connection />
          <SmallMenu />
        </div>
      </header>
      <main id="main" tabIndex={-1} class={`main main-${shown}`}>
        <Boundary key={shown}>
          {shown === "create" && <CreateView />}
          {shown === "library" && <LibraryView />}
          {shown === "chat" && <Later load={() => import("./views/chat/chat")} />}
          {shown === "account" && <Later load={() => import("./views/account/account")} />}
          {shown === "operate" && <Later load={() => import("./views/operate/operate")} />}
        </Boundary>
      </main>
      {shown !== "chat" && <SiteFooter />}
      <p id="scrub-hint" hidden>
        {t("library.scrub_hint")}
      </p>
      <Announcer />
      <Toasts />
    </div>
  );
}

function Preferences() {
  return (
    <>
      <IconButton icon={THEME_ICONS[theme.value]} label={t("theme.switch", { theme: t(THEME_NAMES[theme.value]) })} onClick={() => setTheme(NEXT_THEME[theme.value])} />
      <button type="button" class="lang" lang={lang.value === "en" ? "zh-CN" : "en"} onClick={() => setLang(lang.value === "en" ? "zh" : "en")}>
        <Icon name="globe" size={18} />
        {t("lang.other")}
      </button>
    </>
  );
}

function SmallMenu() {
  const items: MenuItem[] = [
    { icon: "person", text: t("nav.account"), onSelect: () => go("account") },
    { icon: THEME_ICONS[theme.value], text: t("theme.switch", { theme: t(THEME_NAMES[theme.value]) }), onSelect: () => setTheme(NEXT_THEME[theme.value]) },
    { icon: "globe", text: t("lang.other"), onSelect: () => setLang(lang.value === "en" ? "zh" : "en") },
    { icon: "out", text: t("nav.log_out"), onSelect: () => void leave() },
  ];
  return <Menu label={t("nav.settings")} icon="gear" items={items} />;
}

/** Silent while all is well. */
function Connection() {
  return (
    <div class="connection" role="status">
      {connection.value === "waiting" && (
        <Button kind="quiet" icon="warn" onClick={reconnect}>
          {t("nav.reconnecting")}
        </Button>
      )}
    </div>
  );
}

/** Says of each task once that it has ended. */
function Announcer() {
  const task = announced.value;
  return (
    <p class="sr-only" role="status" aria-live="polite">
      {task?.video ? t("card.announced", { prompt: task.video.prompt, status: t(`status.${task.status}`) }) : ""}
    </p>
  );
}
