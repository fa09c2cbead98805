"""Every view of the page in a state worth looking at: for axe, and for screenshots.

`python -m tests.page.views FOLDER` makes screenshots of all of them, light and dark, phone and wide, in both languages,
from a real service with real videos.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from tests.page.conftest import SIZES, Browser, Visitor, open_browser
from tests.service import Service, running_service

PROMPTS = (
    "a red square moving to the right",
    "a yellow star spinning on a blue background",
    "a white heart growing on a red background",
    "a purple triangle moving down",
    "a green circle moving up and a blue ring moving left",
)
THEMES = ("light", "dark")
LANGS = ("en", "zh")
TABS = ("overview", "models", "workers", "keys", "usage")


async def furnish(browser: Browser, service: Service) -> None:
    """Some finished videos."""
    visitor = await browser.visitor(draft={"prompt": ""})
    await visitor.enter(service.api_key)
    for prompt in PROMPTS:
        await visitor.ask_for(prompt)
    for prompt in PROMPTS:
        card = visitor.tab.locator("article[data-task]").filter(has_text=prompt).first
        await card.scroll_into_view_if_needed()
        await card.locator("video").wait_for(timeout=120_000)


async def tour(visitor: Visitor, service: Service) -> AsyncIterator[str]:
    """Brings up one view after the other, and says its name when it is ready."""
    tab = visitor.tab
    await tab.goto(visitor.url)
    await tab.locator(".login-box").wait_for()
    yield "login"
    await visitor.enter(service.api_key)
    await tab.locator(".card-picture video").first.wait_for()
    yield "create"
    await tab.locator(".composer select").select_option("wan-tiny-ti2v")
    await tab.locator(".composer summary").click()
    yield "create-advanced"
    await tab.locator(".composer select").select_option("wan-tiny-t2v")
    card = await visitor.ask_for("a pink circle moving to the left")
    await card.locator("img.card-preview").wait_for(timeout=90_000)
    yield "live-card"
    await card.locator("video").wait_for(timeout=90_000)
    await card.locator(".menu button").click()
    yield "card-menu"
    await tab.keyboard.press("Escape")
    await visitor.go("library")
    await tab.locator(".tile img").nth(3).wait_for()
    yield "library"
    await tab.locator(".tile-open").first.click()
    await tab.locator("dialog video").wait_for()
    yield "library-video"
    await tab.keyboard.press("Escape")
    await visitor.go("chat")
    await tab.locator(".starters").wait_for()
    await visitor.take_answers_of(60)
    yield "chat-empty"
    await tab.locator(".starters button").first.click()
    await tab.locator(".figures").wait_for(timeout=120_000)
    yield "chat"
    for name in TABS:
        await visitor.go(f"operate/{name}")
        await tab.locator(".tiles, .entry, tbody tr, .empty").first.wait_for()
        yield f"operate-{name}"
    await visitor.go("operate/models")
    await tab.locator(".row-spread .button-primary").click()
    await tab.locator(".register").wait_for()
    yield "operate-register"


async def screenshots(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with running_service(Path(directory)) as service, open_browser(service) as browser:
            await furnish(browser, service)
            for size in SIZES:
                for theme in THEMES:
                    for lang in LANGS:
                        visitor = await browser.visitor(size, theme, lang, draft={"prompt": ""})
                        async for name in tour(visitor, service):
                            await visitor.tab.wait_for_timeout(400)  # for pictures to fade in
                            await visitor.tab.screenshot(path=folder / f"{name}-{size}-{theme}-{lang}.png")
                        await browser.send_all_home()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(screenshots(target))
