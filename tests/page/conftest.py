"""A browser on the page of a whole Turnout: Debian's headless chromium, or what `playwright install chromium` has brought."""

import json
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.conftest import wait_until
from tests.pace import patient
from tests.service import Service

WEB = Path(__file__).parents[2] / "web"
# It opens no windows, each of which costs CPU. None: Playwright's own.
CHROMIUM = shutil.which("chromium-headless-shell")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"phone": (390, 844), "wide": (1440, 900)}

# What the form begins with: a render of a second in place of ten, or of as many as a person needs to see it.
_DRAFT = """try {
  sessionStorage["turnout.draft"] ??= JSON.stringify(%s);
} catch {}"""
QUICK = {"prompt": "", "steps": "4", "frames": 5}
VISIBLE = {"prompt": "", "steps": "12"}

# How long Playwright waits, for all it is told to wait for: a model may be woken and a video rendered meanwhile.
_WAIT_S = 120
_ASKED_FOR = re.compile(r"/v1/videos(/[^/]+/remix)?$")


def languages(everyday: str) -> pytest.MarkDecorator:
    """A flow in both languages; the test command takes one, for the page does the same in the other with words that
    `test_sources_of_the_page` and the compiler compare. `./dev test-page` takes both."""
    others = {"en", "zh"} - {everyday}
    return pytest.mark.parametrize(
        "lang", [everyday, *(pytest.param(lang, marks=pytest.mark.long) for lang in others)]
    )


def _playwright() -> Any:
    # Here, as it takes 1 s of CPU in each process that only collects the tests.
    from playwright import async_api

    return async_api


def expect(what: Any, said: str | None = None) -> Any:
    """Playwright's assertions, which wait for what the page is yet to show. A look that does not wait (`count`, `inner_text`,
    `evaluate`) sees what is there by chance, so it stands only after a wait for what is shown no earlier."""
    return _playwright().expect(what, said)


async def loaded(video: Any) -> None:
    await wait_until(lambda: video.evaluate("v => v.readyState >= 2"), "the video to load")


async def rendered(service: Service, prompt: str, **fields: Any) -> dict[str, Any]:
    """A video that is done, made over the API."""
    async with service.client() as client:
        asked = {"prompt": prompt, "steps": 4, "frames": 5, **fields}
        video = (await client.post("/v1/videos", json=asked)).raise_for_status().json()

        async def done() -> bool:
            return (await client.get(f"/v1/videos/{video['id']}")).json()["status"] == "completed"

        await wait_until(done, "the video", 90)
        return (await client.get(f"/v1/videos/{video['id']}")).json()


@dataclass
class Visitor:
    """A person's own browser profile with one tab; `complaints` is what the console said. Of requests that were refused it
    says so, too, which is no fault where a test is about a refusal."""

    tab: Any
    url: str
    is_refused: bool = False
    complaints: list[str] = field(default_factory=list)

    async def go(self, view: str) -> None:
        """Until it is shown: a fragment loads nothing, so what was shown before may be there for a moment."""
        await self.tab.goto(f"{self.url}/#/{view}")
        name, _, rest = view.partition("/")
        here = f".tabs a[href='#/{name}/{rest.partition('/')[0]}'][aria-current]" if rest else f".main-{name}"
        await self.tab.locator(here).wait_for()

    async def inside(self) -> None:
        """Whoever is logged in sees where she is."""
        await self.tab.locator("nav a[aria-current=page]").wait_for()

    async def enter(self, key: str, *, remember: bool = False) -> None:
        await self.tab.context.clear_cookies()
        await self.tab.goto(self.url)
        await self.show_key_form()
        await self.tab.locator("input[type=password]").fill(key)
        if remember:
            await self.tab.locator("input[type=checkbox]").check()
        await self.tab.keyboard.press("Enter")
        await self.inside()

    async def show_key_form(self) -> None:
        """Where there are other ways in, it is folded."""
        await self.tab.locator(".login-box :is(input[type=password], summary)").first.wait_for()
        if await self.tab.locator(".login-more:not([open])").count():
            await self.tab.locator(".login-more summary").click()

    async def ask_for(self, prompt: str) -> Any:
        """Submits a prompt; the card that appears."""
        await self.tab.locator(".composer textarea").first.fill(prompt)
        return await self.card_of(lambda: self.tab.keyboard.press("Control+Enter"))

    async def card_of(self, act: Callable[[], Awaitable[None]]) -> Any:
        """The card of the one video that is asked for by this. By the id in the answer: a card may be shown before there is one,
        and those of other videos come while the list loads."""
        async with self.tab.expect_response(_tells_of_a_new_video) as answer:
            await act()
        video = await (await answer.value).json()
        card = self.tab.locator(f"article[data-task={video['id']}]")
        await card.wait_for()
        return card

    async def copied(self) -> str:
        """What is in the clipboard once the page says so: it is written after the click."""
        await self.tab.locator(".toast").first.wait_for()
        return await self.tab.evaluate("navigator.clipboard.readText()")

    async def has_time_to_undo(self) -> None:
        """Six seconds may be over on a slow machine before a test has looked. For what is loaded from now on."""
        await self.tab.add_init_script(
            "const soon = window.setTimeout;"
            "window.setTimeout = (run, ms, ...more) => soon(run, ms === 6000 ? 120000 : ms, ...more);"
        )

    async def take_answers_of(self, tokens: int) -> None:
        """Neither more nor fewer: a tiny model says a word, or rambles for minutes."""

        async def measure(route: Any) -> None:
            body = {**route.request.post_data_json, "max_tokens": tokens, "ignore_eos": True}
            await route.continue_(post_data=json.dumps(body))

        await self.tab.route("**/v1/chat/completions", measure)

    async def violations(self) -> list[Any]:
        """What axe finds, once transitions are over: a colour on its way is none of the design's. It comes in by the debugger,
        because the page's CSP lets no stranger's script in."""
        session = await self.tab.context.new_cdp_session(self.tab)
        axe = (WEB / "node_modules" / "axe-core" / "axe.min.js").read_text()
        await session.send("Runtime.evaluate", {"expression": axe})
        found = await session.send(
            "Runtime.evaluate",
            {
                "expression": "Promise.allSettled(document.getAnimations().filter("
                "a => a.effect.getComputedTiming().endTime < 5000).map(a => a.finished))"
                ".then(() => axe.run()).then(r => JSON.stringify(r.violations.map(v => [v.id, v.impact,"
                " v.nodes.map(n => n.target.join(' '))])))",
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        await session.detach()
        return json.loads(found["result"]["value"])


def _tells_of_a_new_video(answer: Any) -> bool:
    return answer.request.method == "POST" and bool(_ASKED_FOR.search(answer.url))


@asynccontextmanager
async def traced(visitor: Visitor) -> AsyncIterator[list[float]]:
    """At the end the list has the milliseconds of CPU that each task of the page's main thread took meanwhile. Wall time
    would measure what else runs on the machine."""
    chromium = visitor.tab.context.browser
    await chromium.start_tracing(page=visitor.tab, categories=["toplevel", "devtools.timeline"])
    took_ms: list[float] = []
    yield took_ms
    events = json.loads(await chromium.stop_tracing())["traceEvents"]
    named = [e for e in events if e.get("name") == "thread_name"]
    mains = {(e["pid"], e["tid"]) for e in named if e["args"].get("name") == "CrRendererMain"}
    tasks = [e for e in events if e.get("name", "").endswith("RunTask") and (e["pid"], e["tid"]) in mains]
    took_ms += [e.get("tdur", 0) / 1000 for e in tasks]


class Browser:
    """`visitor` opens a profile of its own; all are closed at a test's end."""

    def __init__(self, chromium: Any, url: str) -> None:
        self._chromium = chromium
        self._profiles: list[Any] = []
        self.url = url

    async def visitor(
        self,
        size: str = "wide",
        theme: str = "light",
        lang: str = "en",
        *,
        moving: bool = False,
        draft: Mapping[str, Any] = QUICK,
        is_refused: bool = False,
    ) -> Visitor:
        """`moving`: with animations and clips that play by themselves, which are drawn by the CPU."""
        width, height = SIZES[size]
        profile = await self._chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            locale="zh-CN" if lang == "zh" else "en-US",
            has_touch=size == "phone",
            reduced_motion="no-preference" if moving else "reduce",
            permissions=["clipboard-read", "clipboard-write"],
        )
        self._profiles.append(profile)
        limit_ms = patient(_WAIT_S) * 1000
        profile.set_default_timeout(limit_ms)
        _playwright().expect.set_options(timeout=limit_ms)
        await profile.add_init_script(_DRAFT % json.dumps(draft))
        visitor = Visitor(await profile.new_page(), self.url, is_refused)
        visitor.tab.on("console", lambda m: _note(visitor, m.type, m.text))
        visitor.tab.on("pageerror", lambda err: visitor.complaints.append(str(err)))
        return visitor

    async def send_all_home(self) -> None:
        while self._profiles:
            profile = self._profiles.pop()
            for tab in profile.pages:
                # What still answers in the page's stead would fail in the test that follows.
                await tab.unroute_all(behavior="ignoreErrors")
            await profile.close()


def _note(visitor: Visitor, kind: str, text: str) -> None:
    if kind in ("error", "warning") and not (visitor.is_refused and "Failed to load resource" in text):
        visitor.complaints.append(text)


def open_browser(service: Service) -> AbstractAsyncContextManager[Browser]:
    return chromium_on(service.url)


@asynccontextmanager
async def chromium_on(url: str, *flags: str) -> AsyncIterator[Browser]:
    async with _playwright().async_playwright() as driver:
        if CHROMIUM is None and not Path(driver.chromium.executable_path).exists():
            pytest.skip(
                "There is no browser: install chromium-headless-shell, or run `playwright install chromium`."
            )
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
        try:
            yield Browser(chromium, url)
        finally:
            await chromium.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def opened(service: Service) -> AsyncIterator[Browser]:
    async with open_browser(service) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def browser(opened: Browser) -> AsyncIterator[Browser]:
    """A tab that is left open would go on playing videos through the tests that follow."""
    yield opened
    await opened.send_all_home()
