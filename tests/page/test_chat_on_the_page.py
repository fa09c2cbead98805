"""Chat on the page: streaming, stopping, asking again, and text that nobody vouches for."""

import json
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.page.conftest import Browser, Visitor, traced
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANSWERED_MS = 120_000

# What a hostile model might say: scripts, handlers, forms, styles, frames, pictures from elsewhere.
HOSTILE = """# Title
<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">
<svg onload="window.hacked = 3"></svg><iframe src="javascript:window.hacked=4"></iframe>
[click](javascript:window.hacked=5) ![look](https://tracker.invalid/x.png) [a link](https://example.invalid)
<form action="https://evil.invalid"><input name=a></form><style>body{display:none}</style>
<a href="https://other.invalid" onclick="window.hacked = 6">a link</a>
"""


async def _say(visitor: Visitor, text: str) -> None:
    await visitor.tab.locator(".chat-input textarea").fill(text)
    await visitor.tab.keyboard.press("Enter")


async def test_an_answer_streams_stops_and_is_asked_for_again(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.go("chat")
    await visitor.take_answers_of(2_000)
    await _say(visitor, "Count from one to two hundred in words, one number a line.")
    answer = visitor.tab.locator(".said-assistant .markdown")
    await answer.wait_for(timeout=ANSWERED_MS)
    length = len(await answer.inner_text())

    async def grew() -> bool:
        return len(await answer.inner_text()) > length

    await wait_until(grew, "more of the answer")
    await visitor.tab.get_by_role("button", name="Stop").click()
    await visitor.tab.get_by_text("Stopped", exact=True).wait_for()
    await visitor.take_answers_of(12)
    await visitor.tab.get_by_role("button", name="Edit message").click()
    await visitor.tab.locator(".said-editing textarea").fill("Say hello.")
    await visitor.tab.locator(".said-editing button[type=submit]").click()
    await visitor.tab.get_by_text("tokens/s").wait_for(timeout=ANSWERED_MS)
    await visitor.tab.get_by_role("button", name="Regenerate").click()
    await visitor.tab.get_by_role("button", name="Regenerate").wait_for(timeout=ANSWERED_MS)
    assert await visitor.tab.locator(".said-assistant").count() == 1
    async with visitor.tab.expect_download() as saving:
        await visitor.tab.get_by_role("button", name="Export as JSON").click()
    saved = json.loads((await (await saving.value).path()).read_text())
    assert saved["messages"][0] == {"role": "user", "content": "Say hello."}
    await visitor.tab.reload()
    await visitor.tab.locator(".chat-title").click()
    assert await visitor.tab.locator(".said-text").text_content() == "Say hello."
    assert visitor.complaints == []


async def test_what_a_model_says_runs_nothing_and_loads_nothing(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    asked: list[str] = []
    visitor.tab.on("request", lambda request: asked.append(request.url))
    await visitor.enter(service.api_key)
    await _answer_with(visitor, HOSTILE)
    await visitor.go("chat")
    await _say(visitor, "hello")
    await visitor.tab.locator(".said-assistant h1").wait_for()
    assert await visitor.tab.evaluate("window.hacked") is None
    inside = visitor.tab.locator(".said-assistant .markdown")
    for tag in ("script", "img", "svg", "iframe", "form", "input", "style"):
        assert await inside.locator(tag).count() == 0, tag
    assert await inside.locator("a[href^=javascript]").count() == 0
    assert await inside.locator("a[href^=https]").get_attribute("rel") == "noopener noreferrer nofollow"
    assert all(url.startswith((browser.url, "blob:")) for url in asked)
    assert visitor.complaints == []


async def _answer_with(visitor: Visitor, text: str) -> None:
    events = [
        {"choices": [{"delta": {"content": piece}}]}
        for piece in (text[i : i + 40] for i in range(0, len(text), 40))
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    async def fulfil(route: Any) -> None:
        await route.fulfill(body=body, content_type="text/event-stream")

    await visitor.tab.route("**/v1/chat/completions", fulfil)


async def test_a_refusal_is_said_in_words(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(is_refused=True)
    await visitor.enter(service.api_key)

    async def refuse(route: Any) -> None:
        error = {"message": "limit", "type": "rate_limit_error", "param": None, "code": None}
        await route.fulfill(status=429, headers={"Retry-After": "7"}, json={"error": error})

    await visitor.tab.route("**/v1/chat/completions", refuse)
    await visitor.go("chat")
    await _say(visitor, "hello")
    await visitor.tab.locator(".said-broken").get_by_text("in 7 s").wait_for()


@pytest.mark.long
async def test_a_history_of_200_000_characters_stays_smooth(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.go("chat")
    await visitor.tab.locator(".chat-input textarea").wait_for()
    await visitor.tab.evaluate(LONG_HISTORY)
    await visitor.tab.reload()
    await visitor.tab.locator(".chat-title").click()
    await visitor.tab.locator(".said").first.wait_for(state="attached")
    await _answer_with(visitor, "word **bold** and more\n\n" * 200)
    async with traced(visitor) as took_ms:
        await _say(visitor, "hello")
        await visitor.tab.get_by_role("button", name="Regenerate").wait_for(timeout=ANSWERED_MS)
    assert max(took_ms) < 200


LONG_HISTORY = """() => new Promise((done) => {
  const opening = indexedDB.open("turnout", 1);
  opening.onsuccess = () => {
    const paragraph = "Some **words** with `code` and a [link](https://example.invalid).\\n\\n";
    const message = (i) => ({ id: String(i), role: i % 2 ? "assistant" : "user", text: paragraph.repeat(30), stats: null, broken: null, stopped: false });
    const writing = opening.result.transaction("conversations", "readwrite");
    writing.objectStore("conversations").put({ id: "long", owner: "default", title: "long", model: "smollm2", system: "", temperature: 1, updatedAt: Date.now(), messages: Array.from({ length: 100 }, (_, i) => message(i)) });
    writing.oncomplete = () => done();
  };
})"""
