"""Chat on the page: streaming, stopping, asking again, and text that nobody vouches for."""

import asyncio
import contextlib
import io
import json
from typing import Any

import pytest
from PIL import Image
from tests.conftest import wait_until
from tests.page.conftest import Browser, Visitor, expect, traced
from tests.page.views import with_eyes
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")

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
    await _answered(visitor)  # or Enter would do nothing
    await visitor.tab.keyboard.press("Enter")


async def _answered(visitor: Visitor, text: str = "") -> None:
    """No answer is being written, and this one is there as it stays."""
    await visitor.tab.locator(".chat-input [type=submit]").wait_for()
    if text:
        await visitor.tab.locator(".said-assistant").get_by_text(text, exact=True).last.wait_for()


async def test_an_answer_streams_stops_and_is_asked_for_again(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.key_of())
    await visitor.go("chat")
    await visitor.take_answers_of(2_000)
    await _say(visitor, "Count from one to two hundred in words, one number a line.")
    answer = visitor.tab.locator(".said-assistant .markdown")
    await answer.wait_for()
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
    await visitor.tab.get_by_text("tokens/s").wait_for()
    await visitor.tab.get_by_role("button", name="Regenerate").click()
    await visitor.tab.get_by_role("button", name="Regenerate").wait_for()
    await expect(visitor.tab.locator(".said-assistant")).to_have_count(1)
    async with visitor.tab.expect_download() as saving:
        await visitor.tab.get_by_role("button", name="Export as JSON").click()
    saved = json.loads((await (await saving.value).path()).read_text())
    assert saved["messages"][0] == {"role": "user", "content": "Say hello."}
    await visitor.tab.reload()
    await expect(visitor.tab.locator(".said-text")).to_have_text("Say hello.")
    assert visitor.complaints == []


async def test_what_a_model_says_runs_nothing_and_loads_nothing(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    asked: list[str] = []
    visitor.tab.on("request", lambda request: asked.append(request.url))
    await visitor.enter(service.key_of())
    await _answer_with(visitor, HOSTILE)
    await visitor.go("chat")
    await _say(visitor, "hello")
    await visitor.tab.get_by_role("button", name="Regenerate").wait_for()  # all of the answer is there
    inside = visitor.tab.locator(".said-assistant .markdown")
    await expect(inside.locator("h1")).to_be_visible()
    await expect(inside.locator("a[href^=https]")).to_have_attribute("rel", "noopener noreferrer nofollow")
    assert await visitor.tab.evaluate("window.hacked") is None
    for tag in ("script", "img", "svg", "iframe", "form", "input", "style"):
        assert await inside.locator(tag).count() == 0, tag
    assert await inside.locator("a[href^=javascript]").count() == 0
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
    await visitor.enter(service.key_of())

    async def refuse(route: Any) -> None:
        error = {"message": "limit", "type": "rate_limit_error", "param": None, "code": None}
        await route.fulfill(status=429, headers={"Retry-After": "7"}, json={"error": error})

    await visitor.tab.route("**/v1/chat/completions", refuse)
    await visitor.go("chat")
    await _say(visitor, "hello")
    await visitor.tab.locator(".said-broken").get_by_text("in 7 s").wait_for()


@pytest.mark.long
async def test_a_history_of_200_000_characters_stays_smooth(browser: Browser, service: Service) -> None:
    visitor, key = await browser.visitor(moving=True), service.key_of()
    paragraph = "Some **words** with `code` and a [link](https://example.invalid).\n\n"
    messages = [
        {
            "id": f"m{i}",
            "parent": f"m{i - 1}" if i else None,
            "role": "assistant" if i % 2 else "user",
            "text": paragraph * 30,
        }
        for i in range(100)
    ]
    async with service.client(key) as client:
        said = {"title": "long", "model": "smollm2", "messages": messages, "leaf": "m99"}
        assert (await client.put("/v1/conversations/long", json=said)).status_code == 200
    await visitor.enter(key)
    await visitor.go("chat")
    await visitor.tab.locator(".chat-title").click()
    await visitor.tab.locator(".said").first.wait_for(state="attached")
    await _answer_with(visitor, "word **bold** and more\n\n" * 200)
    async with traced(visitor) as took_ms:
        await _say(visitor, "hello")
        await visitor.tab.locator(".said-assistant .said-foot").nth(50).wait_for()
    assert max(took_ms) < 200


async def test_conversations_follow_the_person_and_are_found_renamed_and_deleted(
    browser: Browser, service: Service
) -> None:
    key = service.key_of()
    async with service.client(key) as client:
        for n, word in enumerate(("whale", "tulip", "comet", "bread")):
            question = {"id": "q", "role": "user", "text": f"Tell me about {word}s."}
            reply = {"id": "a", "parent": "q", "role": "assistant", "text": f"A {word} it is."}
            said = {"title": f"Talk {n}", "messages": [question, reply], "leaf": "a"}
            assert (await client.put(f"/v1/conversations/c{n}", json=said)).status_code == 200
    visitor = await browser.visitor(lang="zh")
    tab = visitor.tab
    await visitor.enter(key)
    await visitor.go("chat")
    titles = tab.locator(".chat-title span")
    await expect(titles).to_have_count(4)
    await tab.get_by_role("searchbox", name="搜索对话").fill("whale")
    await expect(titles).to_have_text(["Talk 0"])
    await tab.locator(".chat-title").click()
    await tab.get_by_text("A whale it is.").wait_for()
    assert await visitor.violations() == []
    await tab.get_by_role("button", name="重命名对话：Talk 0").click()  # noqa: RUF001
    await tab.locator(".chat-naming input").fill("鲸鱼")
    await tab.keyboard.press("Enter")
    await tab.get_by_text("鲸鱼", exact=True).wait_for()
    await tab.get_by_role("button", name="删除对话：鲸鱼").click()  # noqa: RUF001
    await tab.get_by_text("没有找到").wait_for()
    async with service.client(key) as client:
        left = (await client.get("/v1/conversations")).json()["data"]
    assert {one["title"] for one in left} == {"Talk 1", "Talk 2", "Talk 3"}
    assert visitor.complaints == []


async def test_a_reload_in_mid_answer_keeps_what_came(browser: Browser, service: Service) -> None:
    visitor, key = await browser.visitor(), service.key_of()
    tab = visitor.tab
    await visitor.enter(key)
    await visitor.go("chat")
    await visitor.take_answers_of(3_000)
    await _say(visitor, "Count from one to two hundred in words, one number a line.")
    answer = tab.locator(".said-assistant .markdown")
    await answer.wait_for()

    async def is_long() -> bool:
        return len(await answer.inner_text()) > 100

    await wait_until(is_long, "some of the answer", 60)
    came = (await answer.inner_text())[:60]
    await tab.reload()
    # Why it is not whole: "loaded anew", or that its connection broke, where the browser closed that before it told the page.
    await tab.locator(".said-broken").wait_for()  # it is shown with the answer
    assert (await answer.inner_text()).startswith(came)

    async def is_kept() -> bool:
        async with service.client(key) as client:
            (one,) = (await client.get("/v1/conversations")).json()["data"]
            said = (await client.get(f"/v1/conversations/{one['id']}")).json()
        return len(said["messages"]) == 2 and len(said["messages"][1]["text"]) > 90

    await wait_until(is_kept, "what came to be kept")


async def test_what_is_said_before_the_conversation_has_come_stays(
    browser: Browser, service: Service
) -> None:
    visitor, key = await browser.visitor(), service.key_of()
    await visitor.enter(key)
    await _answer_with(visitor, "an answer")
    await visitor.go("chat")
    await _say(visitor, "one")
    await _answered(visitor, "an answer")
    await wait_until(lambda: _is_kept(service, key, "one"), "the conversation to be kept")
    is_said, methods = asyncio.Event(), list[str]()

    async def let_wait(route: Any) -> None:
        methods.append(route.request.method)
        await is_said.wait()
        await route.continue_()

    await visitor.tab.route("**/v1/conversations/*", let_wait)
    held = await _hold(visitor)
    await visitor.tab.reload()
    await wait_until(lambda: "GET" in methods, "the conversation to be asked for")
    await _say(visitor, "two")
    await wait_until(lambda: len(held) == 1, "the question")
    is_said.set()
    await visitor.tab.get_by_label("Version 2 of 2").wait_for()  # what was there before came in beside
    await expect(visitor.tab.locator(".said-text")).to_have_text(["two"])
    await _give(held[0], "another answer")

    async def is_whole() -> bool:
        async with service.client(key) as client:
            (one,) = (await client.get("/v1/conversations")).json()["data"]
            answer = await client.get(f"/v1/conversations/{one['id']}")
        said = answer.json()["messages"] if answer.status_code == 200 else []
        return [message["text"] for message in said] == ["one", "an answer", "two", "another answer"]

    await wait_until(is_whole, "all to be kept")


async def test_edits_and_further_answers_are_branches(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    tab = visitor.tab
    await visitor.enter(service.key_of())
    await visitor.go("chat")
    await _answer_with(visitor, "the first answer")
    await _say(visitor, "one")
    await _answered(visitor, "the first answer")
    await tab.unroute_all(behavior="wait")
    await _answer_with(visitor, "the second answer")
    await tab.get_by_role("button", name="Regenerate").click()
    await tab.get_by_text("the second answer").wait_for()
    await expect(tab.get_by_text("the first answer")).to_have_count(0)
    await tab.get_by_label("Version 2 of 2").wait_for()
    await tab.get_by_role("button", name="Version before").click()
    await tab.get_by_text("the first answer").wait_for()
    await tab.get_by_role("button", name="Edit message").click()
    await tab.locator(".said-editing textarea").fill("two")
    await tab.locator(".said-editing button[type=submit]").click()
    await _answered(visitor, "the second answer")
    await expect(tab.locator(".said-text")).to_have_text("two")
    await tab.get_by_label("Version 2 of 2").wait_for()
    await tab.reload()
    await tab.get_by_text("the second answer").wait_for()
    await tab.get_by_role("button", name="Version before").click()
    await tab.locator(".said-text").get_by_text("one").wait_for()
    await tab.locator(".said-assistant").get_by_role("button", name="Version before").click()
    await tab.get_by_text("the first answer").wait_for()
    assert await visitor.violations() == []
    assert visitor.complaints == []


async def test_code_has_colours_and_is_copied(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(lang="zh", theme="dark")
    tab, asked = visitor.tab, list[str]()
    tab.on("request", lambda request: asked.append(request.url))
    await visitor.enter(service.key_of())
    await visitor.go("chat")
    await tab.locator(".chat-input textarea").wait_for()
    assert not any("highlight" in url for url in asked), "loaded before there is code"
    await _answer_with(visitor, "Look:\n\n```python\ndef f(x):\n    return 'a' + x  # <b>\n```\n\nDone.")
    await _say(visitor, "code")
    await _answered(visitor, "Done.")  # or there are colours, but not all of the code
    await tab.locator(".code .hljs-keyword").first.wait_for()
    assert await tab.locator(".code code").inner_text() == "def f(x):\n    return 'a' + x  # <b>"
    await tab.locator(".code").get_by_role("button", name="复制").click()
    assert await visitor.copied() == "def f(x):\n    return 'a' + x  # <b>"
    assert await visitor.violations() == []
    assert visitor.complaints == []


async def test_pictures_come_by_button_paste_and_drop_for_models_that_see(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor()
    tab, asked = visitor.tab, list[dict[str, Any]]()
    await visitor.enter(service.key_of())

    await tab.route("**/v1/models", with_eyes)

    async def look(route: Any) -> None:
        asked.append(route.request.post_data_json)
        event = {"choices": [{"delta": {"content": "A gradient."}}]}
        body = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"
        await route.fulfill(body=body, content_type="text/event-stream")

    await tab.route("**/v1/chat/completions", look)
    await visitor.go("chat")
    await tab.get_by_role("button", name="Add pictures").wait_for()
    await tab.locator(".chat-input input[type=file]").set_input_files(_gradient())
    await tab.locator(".chat-composer .said-pictures img").wait_for()
    for kind in ("paste", "drop"):
        await tab.evaluate(HAND_OVER, kind)
    await tab.locator(".chat-composer .said-pictures img").nth(2).wait_for()
    assert await visitor.violations() == []
    await tab.get_by_role("button", name="Remove picture 3").click()
    await _say(visitor, "What is it?")
    await _answered(visitor, "A gradient.")
    text, *pictures = asked[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert [one["image_url"]["url"][:23] for one in pictures] == ["data:image/jpeg;base64,"] * 2
    await tab.reload()
    await tab.locator(".said-user .said-pictures img").nth(1).wait_for()
    assert visitor.complaints == []


async def test_what_is_said_below_pictures_is_in_sight(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    tab = visitor.tab
    await visitor.enter(service.key_of())
    await tab.route("**/v1/models", with_eyes)
    await _answer_with(visitor, "a line\n\n" * 40)
    await visitor.go("chat")
    await _say(visitor, "one")
    await tab.get_by_role("button", name="Regenerate").wait_for()
    await tab.locator(".chat-input input[type=file]").set_input_files([_gradient(), _gradient()])
    await tab.locator(".chat-composer .said-pictures img").nth(1).wait_for()
    await _say(visitor, "What is it?")
    await tab.locator(".said-assistant .figures").nth(1).wait_for(state="attached")
    for n in range(2):
        await tab.locator(".said-user .said-pictures img").nth(n).evaluate("picture => picture.decode()")
    end = "thread => thread.scrollHeight - thread.scrollTop - thread.clientHeight < 60"
    await wait_until(lambda: tab.locator(".thread").evaluate(end), "the end of the answer to be in sight")
    await tab.locator(".thread").evaluate("thread => thread.scrollTo(0, 0)")
    await _say(visitor, "And again?")  # whoever asks wants to see the answer
    await wait_until(lambda: tab.locator(".thread").evaluate(end), "the next answer to be in sight")


async def test_a_model_that_does_not_see_takes_no_picture(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(lang="zh")
    tab = visitor.tab
    await visitor.enter(service.key_of())
    await visitor.go("chat")
    await tab.locator(".chat-input textarea").wait_for()
    assert await tab.locator(".chat-input input[type=file]").count() == 0
    await tab.evaluate(HAND_OVER, "paste")
    await tab.get_by_text("smollm2 看不了图片").wait_for()
    assert await tab.locator(".said-pictures").count() == 0


def _gradient() -> Any:
    paper = io.BytesIO()
    Image.linear_gradient("L").resize((640, 640)).convert("RGB").save(paper, "PNG")
    return {"name": "gradient.png", "mimeType": "image/png", "buffer": paper.getvalue()}


# A picture that is pasted or dropped, as a browser tells of it.
HAND_OVER = """async (kind) => {
  const canvas = document.createElement("canvas");
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  const files = new DataTransfer();
  files.items.add(new File([blob], "a.png", { type: "image/png" }));
  const told = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: files, bubbles: true, cancelable: true })
    : new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
  document.querySelector(".chat-input textarea").dispatchEvent(told);
}"""


async def test_where_nothing_is_kept_the_page_says_so(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    tab = visitor.tab
    await visitor.enter(service.key_of())

    async def none(route: Any) -> None:
        await route.fulfill(json={"object": "list", "data": [], "most": 0})

    await tab.route("**/v1/conversations*", none)
    await _answer_with(visitor, "an answer")
    await visitor.go("chat")
    await tab.get_by_text("Conversations are not kept here").wait_for()
    await _say(visitor, "hello")
    await _answered(visitor, "an answer")
    await expect(tab.locator(".chat-title span")).to_have_text(["hello"])
    assert await visitor.violations() == []
    await tab.reload()
    await tab.locator(".starters").wait_for()
    assert visitor.complaints == []


async def _hold(visitor: Visitor) -> list[Any]:
    """Answers of models wait in the list until they are given by `_give`."""
    held: list[Any] = []

    async def keep(route: Any) -> None:
        held.append(route)

    await visitor.tab.route("**/v1/chat/completions", keep)
    return held


async def _give(route: Any, text: str) -> None:
    event = {"choices": [{"delta": {"content": text}}]}
    body = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"
    with contextlib.suppress(Exception):  # whoever gave the request up gets nothing
        await route.fulfill(body=body, content_type="text/event-stream")


async def _kept(service: Service, key: str) -> list[str]:
    async with service.client(key) as client:
        return [one["title"] for one in (await client.get("/v1/conversations")).json()["data"]]


async def _is_kept(service: Service, key: str, title: str) -> bool:
    return title in await _kept(service, key)


async def test_a_conversation_that_is_deleted_in_mid_answer_stays_deleted(
    browser: Browser, service: Service
) -> None:
    visitor, key = await browser.visitor(), service.key_of()
    tab = visitor.tab
    await visitor.enter(key)
    held = await _hold(visitor)
    await visitor.go("chat")
    await _say(visitor, "to be deleted")
    await wait_until(lambda: _is_kept(service, key, "to be deleted"), "the question to be kept")
    await wait_until(lambda: len(held) == 1, "the question")
    await tab.get_by_role("button", name="Delete conversation: to be deleted").click()
    await tab.locator(".starters").wait_for()
    await _give(held[0], "a late answer")
    await _say(visitor, "the next one")
    await wait_until(lambda: len(held) == 2, "the next question")
    await _give(held[1], "an answer")
    await tab.get_by_text("an answer", exact=True).wait_for()
    await wait_until(lambda: _is_kept(service, key, "the next one"), "the next one to be kept")
    assert await _kept(service, key) == ["the next one"]
    await expect(tab.locator(".chat-title span")).to_have_text(["the next one"])
    assert visitor.complaints == []


async def test_whoever_logs_in_next_has_nothing_of_an_answer_that_was_being_written(
    browser: Browser, service: Service
) -> None:
    visitor, first, second = await browser.visitor(is_refused=True), service.key_of(), service.key_of()
    tab = visitor.tab
    await visitor.enter(first)
    held = await _hold(visitor)
    await visitor.go("chat")
    await _say(visitor, "a secret of the first one")
    await wait_until(lambda: _is_kept(service, first, "a secret of the first one"), "the question to be kept")
    await wait_until(lambda: len(held) == 1, "the question")
    await tab.get_by_role("button", name="Log out").click()
    await visitor.show_key_form()  # in the same page: nothing is loaded anew
    await tab.locator("input[type=password]").fill(second)
    await tab.keyboard.press("Enter")
    await visitor.inside()
    await _give(held[0], "a secret answer")
    await visitor.go("chat")
    await tab.locator(".starters").wait_for()
    await _say(visitor, "hello")
    await wait_until(lambda: len(held) == 2, "the second one's question")
    await _give(held[1], "an answer")
    await tab.get_by_text("an answer", exact=True).wait_for()
    await wait_until(lambda: _is_kept(service, second, "hello"), "the second one's own")
    assert await _kept(service, second) == ["hello"]
    await expect(tab.locator(".chat-title span")).to_have_text(["hello"])
    assert "secret" not in await tab.evaluate("JSON.stringify(sessionStorage)")
    assert visitor.complaints == []


@pytest.mark.parametrize(("lang", "said"), [("en", "deleted elsewhere"), ("zh", "已在别处被删除")])
async def test_a_conversation_that_was_deleted_elsewhere_is_not_kept_and_that_is_said(
    browser: Browser, service: Service, lang: str, said: str
) -> None:
    visitor, key = await browser.visitor(lang=lang, is_refused=True), service.key_of()
    tab = visitor.tab
    await visitor.enter(key)
    await _answer_with(visitor, "an answer")
    await visitor.go("chat")
    await _say(visitor, "one")
    await tab.get_by_text("an answer").wait_for()

    async def is_whole() -> bool:
        listed = (await client.get("/v1/conversations")).json()["data"]
        return [one["revision"] for one in listed] == [2]

    async with service.client(key) as client:
        await wait_until(is_whole, "question and answer to be kept")
        (one,) = (await client.get("/v1/conversations")).json()["data"]
        await client.delete(f"/v1/conversations/{one['id']}")
        for n in range(2):
            await _say(visitor, f"more {n}")
            await tab.get_by_text("an answer").nth(n + 1).wait_for()
            await _answered(visitor)
            await tab.locator(".chat-unkept").get_by_text(said).wait_for()
        assert (await client.get("/v1/conversations")).json()["data"] == []
    await tab.locator(".plain-list .icon-button").last.click()
    await tab.locator(".starters").wait_for()
    assert visitor.complaints == []


async def test_an_edit_in_mid_answer_waits_for_its_end(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    tab = visitor.tab
    await visitor.enter(service.key_of())
    held = await _hold(visitor)
    await visitor.go("chat")
    await _say(visitor, "one")
    await tab.get_by_role("button", name="Edit message").click()
    box = tab.locator(".said-editing textarea")
    await box.fill("two, which took a while to write")
    send = tab.locator(".said-editing button[type=submit]")
    await send.click(force=True)  # it is marked as disabled
    await expect(box).to_have_value("two, which took a while to write")
    await wait_until(lambda: len(held) == 1, "the first question")
    await _give(held[0], "the first answer")
    await _answered(visitor, "the first answer")
    await send.click()
    await wait_until(lambda: len(held) == 2, "the edited question")
    await _give(held[1], "the second answer")
    await tab.get_by_text("the second answer").wait_for()
    await expect(tab.locator(".said-text")).to_have_text("two, which took a while to write")
    assert visitor.complaints == []
