"""Every view of the page in a state worth looking at: for axe, and for screenshots.

`./dev screenshots FOLDER` makes pictures of all of them, light and dark, phone and wide, in both languages, from a real
service with real videos. One of them is also made small, as `page.webp`: README shows it from docs/images.
"""

import asyncio
import io
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from tests.conftest import wait_until
from tests.issuer import CLIENT, SECRET, running_issuer
from tests.page.conftest import Browser, Visitor, open_browser
from tests.page.operators_views import operating, people
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
        for video, tags in zip(made[1:4], (["shapes"], ["shapes", "spinning"], ["red"]), strict=True):
            await client.patch(f"/v1/videos/{video['id']}", json={"favourite": True, "tags": tags})


async def tour(visitor: Visitor, service: Service) -> AsyncIterator[str]:
    """Brings up one view after the other, and says its name when it is ready."""
    tab = visitor.tab
    async for name in _way_in(visitor):
        yield name
    await visitor.enter(service.api_key)
    parts = (
        _creating(visitor),
        _making_more(visitor),
        _library(visitor),
        _chat(visitor),
        operating(visitor, service),
        people(visitor, service),
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
    await tab.locator(".login-box .button-primary").first.wait_for()
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
    await tab.locator(".create-feed .card-prompt").first.wait_for()
    yield "create"
    await tab.locator(".composer select").select_option("wan-tiny-ti2v")
    await tab.locator("input[type=file]").set_input_files(_picture())
    await tab.locator(".composer summary").click()
    yield "create-advanced"
    await tab.locator(".composer select").select_option("wan-tiny-t2v")
    await tab.locator(".composer summary").click()
    card = await visitor.ask_for("a pink circle moving to the left")
    await card.locator("img.card-preview").wait_for()
    yield "live-card"
    await card.locator("video").wait_for()
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


async def _making_more(visitor: Visitor) -> AsyncIterator[str]:
    tab = visitor.tab
    await visitor.go("create")
    await tab.locator(".composer input[value='2']").check()
    await tab.locator(".composer textarea").first.fill("an orange ring moving up, twice")
    await tab.keyboard.press("Control+Enter")
    batch = tab.locator("article[data-batch]").first
    await batch.locator("progress").first.wait_for()
    yield "batch-live"
    await batch.locator("progress").first.wait_for(state="detached")
    await batch.locator(".card-actions button").first.click()
    yield "batch"
    await batch.locator(".card-actions button").nth(1).click()
    await tab.locator("dialog video").nth(1).wait_for()
    yield "compare"
    await tab.keyboard.press("Escape")
    await tab.evaluate("scrollTo(0, 0)")
    await tab.locator(".create-form .row-spread .icon-button").click()
    await tab.locator("dialog form input").fill("quick")
    await tab.keyboard.press("Enter")
    await tab.locator("dialog .preset").first.wait_for()
    yield "presets"
    await tab.keyboard.press("Escape")
    await tab.locator(".field-tools .menu button").click()
    yield "prompts-before"
    await tab.keyboard.press("Escape")
    await tab.route("**/v1/prompts/enhance", _improve)
    await tab.locator(".field-tools > button").click()
    await tab.locator(".composer .note").wait_for()
    yield "prompt-improved"
    await tab.locator(".composer .note button").click()
    await tab.locator(".composer select").select_option("wan-tiny-ti2v")
    await tab.locator(".drop").nth(1).click()
    await tab.locator("dialog .pick").nth(2).wait_for()
    yield "from-library"
    await tab.locator("dialog .pick").first.click()
    await tab.locator("dialog video").wait_for()
    yield "from-library-frame"
    await tab.keyboard.press("Escape")
    await tab.locator(".composer select").select_option("wan-tiny-t2v")


async def _improve(route: Any) -> None:
    better = "An orange ring rises slowly over a plain white ground, soft light, the camera stands still."
    await route.fulfill(json={"object": "prompt.enhanced", "prompt": better, "prompt_model": "smollm2"})


def _picture() -> Any:
    paper = io.BytesIO()
    Image.linear_gradient("L").resize((256, 256)).convert("RGB").save(paper, "PNG")
    return {"name": "gradient.png", "mimeType": "image/png", "buffer": paper.getvalue()}


async def _library(visitor: Visitor) -> AsyncIterator[str]:
    tab = visitor.tab
    await visitor.go("library")
    await tab.locator(".tile img").nth(3).wait_for()
    yield "library"
    for n in range(2):
        await tab.locator(".tile").nth(n).hover()
        await tab.locator(".tile-choose").nth(n).check()
    yield "library-chosen"
    await tab.locator(".chosen button").first.click()
    await tab.locator(".tile-open").first.click()
    await tab.locator("dialog video").wait_for()
    yield "library-video"
    await tab.locator("dialog .menu button").click()
    await tab.locator("[role=menuitem]:not(.danger)").last.click()
    await tab.locator("dialog form input").wait_for()
    yield "library-tags"
    await tab.keyboard.press("Escape")
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
    await tab.locator(".figures").wait_for()
    yield "chat"
    await tab.locator(".chat-composer summary").click()
    yield "chat-settings"
    await tab.locator(".chat-composer summary").click()
    await tab.unroute_all(behavior="wait")
    await tab.route("**/v1/chat/completions", _speak)
    await tab.locator(".said-assistant .said-foot button").last.click()
    await tab.locator(".code .hljs-keyword").first.wait_for()
    await tab.locator(".said-branches").wait_for()
    yield "chat-code"
    await tab.route("**/v1/models", with_eyes)
    await tab.reload()
    # What was said before comes from the service, in place of what is said until then.
    await tab.locator(".code").wait_for()
    await tab.locator(".chat-input input[type=file]").set_input_files([_picture(), _picture()])
    await tab.locator(".chat-composer .said-pictures img").nth(1).wait_for()
    yield "chat-pictures"
    await tab.locator(".chat-input textarea").fill("What do you see?")
    await tab.keyboard.press("Enter")
    await tab.locator(".said-user .said-pictures img").nth(1).wait_for()
    await tab.locator(".figures").nth(1).wait_for()
    yield "chat-seen"
    toggle = tab.locator(".chat-list-toggle")
    if await toggle.is_visible():
        await toggle.click()
        yield "chat-conversations"
    await tab.unroute_all(behavior="wait")


ANSWER = """Here is a loop that reads the stream:

```python
async for line in answer.aiter_lines():
    if line.startswith("data: "):  # all else is a comment
        print(json.loads(line[6:])["choices"][0]["delta"].get("content", ""), end="", flush=True)
```

| part | what it does |
| --- | --- |
| `aiter_lines` | gives one line after the other |
| `delta` | has what is new |

1. **Stop** by closing the answer.
2. An error comes as an event, too.
"""


async def _speak(route: Any) -> None:
    events = [{"choices": [{"delta": {"content": ANSWER[i : i + 40]}}]} for i in range(0, len(ANSWER), 40)]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    await route.fulfill(body=f"{body}data: [DONE]\n\n", content_type="text/event-stream")


async def with_eyes(route: Any) -> None:
    answer = await route.fetch()
    listed = await answer.json()
    listed["data"] = [{**m, "vision": True} if m["kind"] == "chat" else m for m in listed["data"]]
    await route.fulfill(response=answer, json=listed)


async def public_tour(visitor: Visitor) -> AsyncIterator[str]:
    """A service that is open to strangers, under its operator's name."""
    tab = visitor.tab
    await tab.goto(visitor.url)
    guest = tab.locator(".login-guest button")
    await guest.click()
    await tab.locator(".terms [role=alert]").wait_for()
    yield "site-login"
    await tab.locator(".terms button").click()
    await tab.locator("dialog .terms-text").wait_for()
    yield "site-terms"
    await tab.keyboard.press("Escape")
    await tab.locator(".terms input").check()
    await guest.click()
    await tab.locator(".create-feed .empty-title").wait_for()
    yield "site-create"
    await visitor.go("account")
    await tab.locator(".meter").first.wait_for()
    yield "site-guest"


async def _photograph(browser: Browser, views: Callable[[Visitor], AsyncIterator[str]], folder: Path) -> None:
    for size in ("wide", "phone"):
        for theme in THEMES:
            for lang in LANGS:
                visitor = await browser.visitor(size, theme, lang, draft={"prompt": ""})
                async for name in views(visitor):
                    await visitor.tab.wait_for_timeout(400)  # for pictures to fade in
                    taken = folder / f"{name}-{size}-{theme}-{lang}.png"
                    await visitor.tab.screenshot(path=taken)
                    if taken.stem == IN_README:
                        Image.open(taken).save(folder / "page.webp", quality=82, method=6)
                await browser.send_all_home()


TERMS = "1. You answer for what you ask for.\n2. Nothing that is against the law.\n\n请遵守法律法规，勿生成违法内容。"


async def _main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, running_issuer(ann={"name": "Ann"}) as issuer:
        own, public = Path(directory, "own"), Path(directory, "public")
        own.mkdir()
        public.mkdir()
        priced = {"cpu": 0.1}
        async with running_service(own, prompt_model="smollm2", gpu_prices=priced) as service:
            await furnish(service)
            async with open_browser(service) as browser:
                await _photograph(browser, lambda visitor: tour(visitor, service), folder)
        (public / "terms.txt").write_text(TERMS)
        footer = [
            {"text": "京ICP备00000000号-1", "url": "https://beian.miit.gov.cn/"},
            {"text": "© Example Ltd."},
        ]
        site = {"name": "Example Video Lab", "footer": footer, "terms": str(public / "terms.txt")}
        oidc = {"issuer": issuer.url, "client_id": CLIENT, "button": "Example"}
        async with (
            running_service(public, site=site, oidc=oidc, oidc_client_secret=SECRET, guests={}) as service,
            open_browser(service) as browser,
        ):
            await _photograph(browser, public_tour, folder)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
