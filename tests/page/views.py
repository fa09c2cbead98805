"""Every view of the page in a state worth looking at: for axe, and for screenshots.

`./dev screenshots FOLDER` makes pictures of all of them, light and dark, phone and wide, in both languages, from a real
service with real videos. One of them is also made small, as `page.webp`: README shows it from docs/images.
"""

import asyncio
import io
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from tests.conftest import wait_until
from tests.page.conftest import Visitor, open_browser
from tests.service import Service, running_service

PROMPTS = (
    "a red square moving to the right",
    "a yellow star spinning on a blue background",
    "a white heart growing on a red background",
    "a purple triangle moving down",
    "a green circle moving up and a blue ring moving left",
)
DOOMED = {"alias": "doomed", "engine": "wan", "model_name": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"}
THEMES = ("light", "dark")
LANGS = ("en", "zh")
SHOWN_MS = 120_000
IN_README = "live-card-wide-light-en"


async def furnish(service: Service) -> None:
    """One video that failed, and some that did not."""
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as client:
        await client.post("/v1/models/register", json=DOOMED)
        failed = (await client.post("/v1/videos", json={"prompt": "a black hole", "model": "doomed"})).json()
        await client.delete("/v1/models/doomed")
        made = [failed] + [
            (await client.post("/v1/videos", json={"prompt": prompt, "seed": 7})).json() for prompt in PROMPTS
        ]

        async def ended() -> bool:
            found = [(await client.get(f"/v1/videos/{video['id']}")).json()["status"] for video in made]
            return set(found) <= {"completed", "failed"}

        await wait_until(ended, "the videos", 240)


async def tour(visitor: Visitor, service: Service) -> AsyncIterator[str]:
    """Brings up one view after the other, and says its name when it is ready."""
    tab = visitor.tab
    async for name in _way_in(visitor):
        yield name
    await visitor.enter(service.api_key)
    parts = (
        _creating(visitor),
        _library(visitor),
        _chat(visitor),
        _operating(visitor, service),
        _people(visitor, service),
    )
    for part in parts:
        async for name in part:
            yield name
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as client:
        other = (await client.post("/v1/keys", json={"tenant": "newcomer", "role": "user"})).json()
    await visitor.enter(other["token"])
    await tab.locator(".empty-title").wait_for()
    yield "create-empty"
    await visitor.go("library")
    await tab.locator(".empty-title").wait_for()
    yield "library-empty"


async def _way_in(visitor: Visitor) -> AsyncIterator[str]:
    tab = visitor.tab
    await tab.goto(visitor.url)
    await tab.locator(".login-box").wait_for()
    await tab.locator(".login-box .button-primary").wait_for()
    yield "login"
    await visitor.show_key_form()
    await tab.locator("input[type=password]").fill("tk-nobody.nothing")
    await tab.keyboard.press("Enter")
    await tab.locator(".field-error").wait_for()
    yield "login-refused"
    await tab.goto(f"{visitor.url}/#/share/nothing")
    await tab.locator("[role=alert]").wait_for()
    yield "share-over"


async def _creating(visitor: Visitor) -> AsyncIterator[str]:
    tab = visitor.tab
    await tab.locator(".card-picture video").first.wait_for()
    yield "create"
    await tab.locator(".composer select").select_option("wan-tiny-ti2v")
    await tab.locator("input[type=file]").set_input_files(_picture())
    await tab.locator(".composer summary").click()
    yield "create-advanced"
    await tab.locator(".composer select").select_option("wan-tiny-t2v")
    await tab.locator(".composer summary").click()
    card = await visitor.ask_for("a pink circle moving to the left")
    await card.locator("img.card-preview").wait_for(timeout=SHOWN_MS)
    yield "live-card"
    await card.locator("video").wait_for(timeout=SHOWN_MS)
    await card.locator(".menu button").click()
    yield "card-menu"
    await tab.keyboard.press("Escape")
    await card.locator(".card-actions button").nth(2).click()
    await tab.locator(".composer .note").wait_for()
    await tab.evaluate("scrollTo(0, 0)")
    yield "create-taken"
    await tab.locator(".composer .note button").click()
    await card.locator(".card-actions button").nth(1).click()
    await tab.locator("dialog .button-primary").click()
    link = await tab.locator("dialog .copyable code").inner_text()
    yield "share-dialog"
    await tab.keyboard.press("Escape")
    stranger = await tab.context.new_page()
    try:
        await stranger.goto(link)
        await stranger.locator("video").wait_for()
        visitor.tab = stranger
        yield "share-page"
    finally:
        visitor.tab = tab
        await stranger.close()


def _picture() -> Any:
    paper = io.BytesIO()
    Image.linear_gradient("L").resize((256, 256)).convert("RGB").save(paper, "PNG")
    return {"name": "gradient.png", "mimeType": "image/png", "buffer": paper.getvalue()}


async def _library(visitor: Visitor) -> AsyncIterator[str]:
    tab = visitor.tab
    await visitor.go("library")
    await tab.locator(".tile img").nth(3).wait_for()
    yield "library"
    await tab.locator(".tile-open").first.click()
    await tab.locator("dialog video").wait_for()
    yield "library-video"
    await tab.keyboard.press("Escape")
    await tab.locator(".search input").fill("black hole")
    await tab.locator(".tile").nth(1).wait_for(state="detached")
    await tab.locator(".tile-open").first.click()
    await tab.locator("dialog .failure").wait_for()
    yield "library-failed"
    await tab.keyboard.press("Escape")
    await tab.locator(".search input").fill("nothing like it")
    await tab.locator(".empty-title").wait_for()
    yield "library-none-found"


async def _chat(visitor: Visitor) -> AsyncIterator[str]:
    tab = visitor.tab
    await visitor.go("chat")
    await tab.locator(".starters").wait_for()
    await visitor.take_answers_of(60)
    yield "chat-empty"
    await tab.locator(".starters button").first.click()
    await tab.locator(".figures").wait_for(timeout=SHOWN_MS)
    yield "chat"
    await tab.locator(".chat-composer summary").click()
    yield "chat-settings"


async def _operating(visitor: Visitor, service: Service) -> AsyncIterator[str]:
    tab = visitor.tab
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as client:
        waits = [
            (await client.post("/v1/videos", json={"prompt": "a queue", "steps": 60})).json()["id"]
            for _ in range(2)
        ]
        await visitor.go("operate/overview")
        await tab.locator("tbody tr").first.wait_for()
        await tab.locator(".plot canvas").nth(4).wait_for()
        yield "operate-overview"
        for video in waits:
            await client.delete(f"/v1/videos/{video}")
    for name in ("models", "workers", "keys", "usage"):
        await visitor.go(f"operate/{name}")
        await tab.locator(".entry, tbody tr").first.wait_for()
        yield f"operate-{name}"
    for name, button, ready in (
        ("models", ".row-spread .button-primary", ".register"),
        ("models", ".entry .button-danger", "dialog .button-danger"),
        ("workers", ".row-spread .button-primary", "dialog .button-primary"),
        ("workers", ".entry .button-danger", "dialog .button-danger"),
        ("keys", ".row-spread .button-primary", "dialog form"),
        ("keys", "tbody .button-danger", "dialog .button-danger"),
    ):
        await visitor.go(f"operate/{name}")
        await tab.locator(button).first.click()
        await tab.locator(ready).wait_for()
        yield f"operate-{name}-{'remove' if 'danger' in button else 'add'}"
        if (name, ready) == ("workers", "dialog .button-primary"):
            await tab.locator(ready).click()
            await tab.locator("dialog .copyable").wait_for()
            yield "operate-workers-command"
        await tab.keyboard.press("Escape")


async def _people(visitor: Visitor, service: Service) -> AsyncIterator[str]:
    tab = visitor.tab
    async with service.client() as client:
        made = await client.post(
            "/v1/invites", json={"uses": 20, "note": "The class of November", "limits": {"videos": 5}}
        )
        link = f"{service.url}/#invite={made.json()['token']}"
    await tab.goto(f"{service.url}/#invite=i-nothing.nothing-at-all")
    await tab.locator(".login-link a").wait_for()
    yield "invite-over"
    await tab.goto(link)
    await tab.locator(".login-box input").first.fill("Ada Lovelace")
    yield "invite"
    await tab.locator(".login-box input").nth(1).fill("ada@example.com")
    await tab.locator(".login-box button[type=submit]").click()
    await tab.locator(".composer").wait_for()
    await visitor.go("account")
    await tab.locator(".tiles dd").first.wait_for()
    yield "account"
    await tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    yield "account-end"
    await tab.locator("section .row-spread button").nth(1).click()
    await tab.locator("dialog form").wait_for()
    yield "account-key"
    await tab.locator("dialog button[type=submit]").click()
    await tab.locator("dialog .copyable").wait_for()
    yield "account-key-made"
    await tab.keyboard.press("Escape")
    await tab.locator(".account .button-danger").last.click()
    await tab.locator("dialog form").wait_for()
    yield "account-delete"
    await visitor.enter(service.api_key)
    await visitor.go("operate/people")
    await tab.locator("tbody tr").first.wait_for()
    yield "operate-people"
    await tab.locator(".row-spread .button-primary").click()
    await tab.locator("dialog form").wait_for()
    yield "operate-people-invite"
    await tab.locator("dialog button[type=submit]").click()
    await tab.locator("dialog .copyable").wait_for()
    yield "operate-people-link"
    await tab.keyboard.press("Escape")
    await tab.locator("tbody .button").first.click()
    await tab.locator("dialog form").wait_for()
    yield "operate-people-change"
    await tab.keyboard.press("Escape")


async def screenshots(service: Service, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    await furnish(service)
    async with open_browser(service) as browser:
        for size in ("wide", "phone"):
            for theme in THEMES:
                for lang in LANGS:
                    visitor = await browser.visitor(size, theme, lang, draft={"prompt": ""})
                    async for name in tour(visitor, service):
                        await visitor.tab.wait_for_timeout(400)  # for pictures to fade in
                        taken = folder / f"{name}-{size}-{theme}-{lang}.png"
                        await visitor.tab.screenshot(path=taken)
                        if taken.stem == IN_README:
                            Image.open(taken).save(folder / "page.webp", quality=82, method=6)
                    await browser.send_all_home()


async def _main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with running_service(Path(directory)) as service:
            await screenshots(service, folder)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
