"""What a person does with videos on the page, in real Chromium on a real `turnout up`."""

import asyncio
import io
import json
import re
from typing import Any

import pytest
from PIL import Image
from tests.conftest import wait_until
from tests.pace import patient
from tests.page.conftest import VISIBLE, Browser, Visitor, expect
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _finished(card: Any) -> None:
    await card.locator("video").wait_for()


async def _watch(card: Any) -> None:
    """From now on the page itself notes what the card shows: a look from here and now may miss all of a fast video."""
    await card.evaluate(_NOTE_STEPS)


_NOTE_STEPS = r"""card => {
  card.shown = { steps: [], preview: false };
  const look = () => {
    const step = /step (\d+) of/.exec(card.textContent);
    if (step) card.shown.steps.push(Number(step[1]));
    card.shown.preview ||= card.querySelector("img.card-preview") !== null;
  };
  new MutationObserver(look).observe(card, { childList: true, characterData: true, subtree: true });
  look();
}"""


async def _shown_until_done(card: Any) -> dict[str, Any]:
    """Whether there was a preview, and every step in the order of showing, since `_watch` until the video is there."""
    await _finished(card)
    return await card.evaluate("card => card.shown")


@pytest.mark.parametrize("lang", ["en", "zh"])
async def test_the_main_path_needs_no_mouse(browser: Browser, service: Service, lang: str) -> None:
    visitor = await browser.visitor(lang=lang)
    await visitor.tab.goto(browser.url)
    await visitor.tab.locator(".login-box").wait_for()
    await visitor.tab.locator(".login-more").wait_for()
    await _tab_to(visitor, "summary")
    await visitor.tab.keyboard.press("Enter")
    await _tab_to(visitor, "input[type=password]")
    await visitor.tab.keyboard.type(service.api_key)
    await visitor.tab.keyboard.press("Enter")
    await visitor.tab.locator(".composer textarea").first.wait_for()
    await _tab_to(visitor, ".composer textarea")
    await visitor.tab.keyboard.type(f"a blue ring moving left for {lang}")
    await visitor.tab.keyboard.press("Control+Enter")
    await _finished(visitor.tab.locator("article[data-task]").filter(has_text=f"for {lang}"))
    await _tab_to(visitor, f"[aria-label='a blue ring moving left for {lang}'] .menu button")
    await visitor.tab.keyboard.press("Enter")
    await visitor.tab.locator("[role=menuitem]:focus").wait_for()
    for _ in range(3):
        await visitor.tab.keyboard.press("ArrowDown")
    await visitor.tab.keyboard.press("Enter")  # copy as curl
    copied = await visitor.copied()
    assert copied.startswith("curl") and service.api_key not in copied
    await expect(visitor.tab.locator("html")).to_have_attribute("lang", "zh-CN" if lang == "zh" else "en")
    assert visitor.complaints == []


async def _tab_to(visitor: Visitor, selector: str) -> None:
    for _ in range(80):
        if await visitor.tab.evaluate("s => document.activeElement?.matches(s)", selector):
            return
        await visitor.tab.keyboard.press("Tab")
    pytest.fail(f"the keyboard does not reach {selector}")


@pytest.mark.parametrize(
    ("lang", "prompt", "said"),
    [
        ("en", "a camel chases a red ball", "not taught “camel” “chases”"),
        ("zh", "骆驼追红色的球", "没有学过“骆驼追”"),
    ],
)
async def test_words_that_the_model_was_not_taught_are_named_on_the_card(
    browser: Browser, service: Service, lang: str, prompt: str, said: str
) -> None:
    visitor = await browser.visitor(lang=lang)
    await visitor.enter(service.api_key)
    card = await visitor.ask_for(prompt)
    await expect(card.locator(".card-notice")).to_contain_text(said)
    assert await visitor.violations() == []


async def test_steps_only_rise_a_preview_shows_and_the_video_plays(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor(moving=True, draft=VISIBLE)
    await visitor.enter(service.api_key)
    card = await visitor.ask_for("a yellow star spinning")
    await _watch(card)
    shown = await _shown_until_done(card)
    assert shown["preview"] and shown["steps"] and shown["steps"] == sorted(shown["steps"])
    await wait_until(lambda: card.locator("video").evaluate("v => v.currentTime > 0"), "the video to play")
    assert visitor.complaints == []


async def test_a_cancelled_video_says_so_and_can_be_tried_again(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(draft={**VISIBLE, "steps": "60"})  # it must not be done before
    await visitor.enter(service.api_key)
    card = await visitor.ask_for("a pink cross standing still")
    await card.get_by_role("button", name="Cancel").click()
    again = await visitor.card_of(card.get_by_role("button", name="Retry").click)
    await again.get_by_role("button", name="Cancel").click()
    await again.get_by_role("button", name="Retry").wait_for()


async def test_a_reload_in_the_middle_restores_everything(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(draft=VISIBLE)
    await visitor.enter(service.api_key)
    card = await visitor.ask_for("a white star growing")
    await card.get_by_text("Drawing").first.wait_for()
    await visitor.tab.locator(".composer textarea").first.fill("a half-written thought")
    await visitor.tab.reload()
    await _watch(card)
    await expect(visitor.tab.locator(".composer textarea").first).to_have_value("a half-written thought")
    steps = (await _shown_until_done(card))["steps"]
    assert steps == sorted(steps)


async def test_a_card_goes_on_when_the_gateway_is_killed(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(draft=VISIBLE)
    await visitor.enter(service.api_key)
    card = await visitor.ask_for("an orange triangle moving down")
    await _watch(card)
    await card.get_by_text("Drawing").first.wait_for()
    service.parts("gateway")[0].kill()
    steps = (await _shown_until_done(card))["steps"]
    assert steps == sorted(steps)
    await expect(visitor.tab.locator("text=Reconnecting").first, "the socket is back").to_be_hidden()


async def test_a_picture_becomes_the_first_frame(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.tab.locator(".composer select").select_option("wan-tiny-ti2v")
    paper = io.BytesIO()
    Image.new("RGB", (128, 128), (200, 30, 30)).save(paper, "PNG")
    chooser = {"name": "red.png", "mimeType": "image/png", "buffer": paper.getvalue()}
    await visitor.tab.locator("input[type=file]").set_input_files(chooser)
    await expect(visitor.tab.locator(".image-chosen img")).to_have_attribute("alt", re.compile("red.png"))
    card = await visitor.ask_for("a red square standing still")
    await _finished(card)
    await card.get_by_role("button", name="More").click()
    await visitor.card_of(visitor.tab.get_by_role("menuitem", name="Again with a new seed").click)
    async with service.client() as client:
        again, first = (await client.get("/v1/videos", params={"limit": 2})).json()["data"]
    assert again["has_image"] and again["seed"] != first["seed"]
    assert again["remixed_from_video_id"] == first["id"]
    await visitor.tab.locator("input[type=file]").set_input_files(
        {"name": "no.txt", "mimeType": "text/plain", "buffer": b"no picture"}
    )
    await expect(visitor.tab.locator(".field-error")).to_contain_text("PNG")


@pytest.mark.parametrize("how", ["drop", "paste"])
async def test_a_picture_may_be_dropped_or_pasted(browser: Browser, service: Service, how: str) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.tab.locator(".composer select").select_option("wan-tiny-ti2v")
    await visitor.tab.evaluate(_BRING, how)
    await visitor.tab.locator(".image-chosen img").wait_for()
    assert visitor.complaints == []


_BRING = """(how) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(8)], "frame.png", { type: "image/png" }));
  const event = how === "drop" ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
    : new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
  document.querySelector(".composer textarea").dispatchEvent(event);
}"""


async def test_a_copied_command_makes_the_same_video(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    card = await visitor.ask_for('it\'s a "red" circle, $HOME `moving` up')
    await card.get_by_role("button", name="More").click()
    await visitor.tab.get_by_role("menuitem", name="Copy as curl").click()
    command = await visitor.copied()
    shell = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        command.replace("curl ", "curl -s ", 1),
        env={"PATH": "/usr/bin:/bin", "TURNOUT_API_KEY": service.api_key},
        stdout=asyncio.subprocess.PIPE,
    )
    answer, _ = await asyncio.wait_for(shell.communicate(), patient(30))
    assert json.loads(answer)["prompt"] == 'it\'s a "red" circle, $HOME `moving` up'


async def test_the_library_finds_scrubs_deletes_and_brings_back(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.has_time_to_undo()
    await visitor.enter(service.api_key)
    await _finished(await visitor.ask_for("a green heart to be deleted"))
    await visitor.go("library")
    tiles = visitor.tab.locator(".tile")
    await visitor.tab.locator(".search input").fill("deleted HEART")
    await expect(tiles, "the search narrows").to_have_count(1)
    await visitor.tab.locator(".tile-open").focus()
    await visitor.tab.keyboard.press("ArrowRight")
    sheet = visitor.tab.locator(".scrub img")
    await sheet.wait_for()
    first = await sheet.get_attribute("style")
    await visitor.tab.keyboard.press("ArrowRight")
    await expect(sheet, "the next frame").not_to_have_attribute("style", first)
    await tiles.hover()
    await visitor.tab.locator(".tile-delete").click()
    await expect(tiles, "the tile goes").to_have_count(0)
    await visitor.tab.get_by_role("button", name="Undo").click()
    await expect(tiles, "the tile comes back").to_have_count(1)
    other_tab = await visitor.tab.context.new_page()
    await other_tab.goto(f"{browser.url}/#/library")
    there = other_tab.locator(".tile").filter(has_text="heart to be deleted")
    await there.wait_for()
    await tiles.hover()
    await visitor.tab.locator(".tile-delete").click()
    await visitor.tab.reload()  # leaving the page does not undo it
    await there.wait_for(state="detached")
    await visitor.tab.locator(".tile, .empty-title").first.wait_for()
    async with service.client() as client:

        async def gone() -> bool:
            page = (await client.get("/v1/videos", params={"limit": 100})).json()
            return all("to be deleted" not in video["prompt"] for video in page["data"])

        await wait_until(gone, "the video to be deleted")


async def test_another_tenant_sees_nothing_and_has_no_operators_view(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.tab.locator(".composer textarea").first.fill("a secret of the first tenant")
    await visitor.tab.locator("button[aria-label='Log out']").click()
    await visitor.enter(service.key_of())
    await visitor.tab.locator(".empty-title").wait_for()
    await expect(visitor.tab.locator(".composer textarea").first).to_have_value("")
    assert await visitor.tab.locator("article").count() == 0
    await visitor.tab.goto(f"{browser.url}/#/operate/keys")
    await visitor.tab.reload()  # or the form that is shown may be the one from before
    await visitor.tab.locator(".composer").wait_for()
    assert await visitor.tab.locator("table").count() == 0


async def test_a_card_says_that_the_connection_is_lost_while_a_gateway_hangs(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor(draft=VISIBLE, is_refused=True)
    await visitor.enter(service.api_key)
    card = await visitor.ask_for("a silver ring that is not heard of")
    await card.get_by_text("Drawing").first.wait_for()
    gateway = service.parts("gateway")[0]
    gateway.suspend()
    try:
        await card.get_by_text("The connection is lost").wait_for()
    finally:
        gateway.resume()
    await card.get_by_text("The connection is lost").wait_for(state="detached")
    await _finished(card)


async def test_a_card_of_several_says_that_the_connection_is_lost(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(draft={**VISIBLE, "steps": "60"}, is_refused=True)
    await visitor.enter(service.key_of())
    tab = visitor.tab
    await tab.locator(".composer input[value='2']").check()
    await tab.locator(".composer textarea").first.fill("two silver rings")
    await tab.keyboard.press("Control+Enter")
    batch = tab.locator("article[data-batch]")
    await batch.locator("img").first.wait_for()
    gateway = service.parts("gateway")[0]
    gateway.suspend()
    try:
        await batch.get_by_text("The connection is lost").wait_for()
    finally:
        gateway.resume()
    await batch.get_by_text("The connection is lost").wait_for(state="detached")
    await batch.get_by_role("button", name="Cancel all").click()
    await batch.get_by_role("button", name="Cancel all").wait_for(state="detached")


async def test_a_task_of_another_program_appears_and_moves_up_without_being_asked_for(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.tab.locator(".create-feed article, .create-feed .empty-title").first.wait_for()
    asked: list[str] = []
    visitor.tab.on("request", lambda request: asked.append(f"{request.method} {request.url}"))
    async with service.client() as client:
        body = {"prompt": "told by its own event", "steps": 60}
        made = [(await client.post("/v1/videos", json=body)).json()["id"] for _ in range(3)]
        last = visitor.tab.locator(f"article[data-task={made[-1]}]")
        await last.get_by_text("told by its own event").wait_for()
        await last.get_by_text("before it").wait_for()
        for video in made[:2]:
            await client.post(f"/v1/videos/{video}/cancel")
        await last.get_by_text("before it").wait_for(state="detached")
        assert [one for one in asked if made[-1] in one and "/content" not in one] == []
        await client.post(f"/v1/videos/{made[-1]}/cancel")
    assert visitor.complaints == []


@pytest.mark.parametrize(
    ("lang", "more", "said"),
    [("en", "Details", "The model doomed-en was removed."), ("zh", "详细原因", "模型 doomed-zh 已被移除。")],
)
async def test_why_a_video_failed_is_said_in_the_readers_language(
    browser: Browser, service: Service, lang: str, more: str, said: str
) -> None:
    name = f"doomed-{lang}"
    wan = {"engine": "wan", "model_name": "builtin:wan-tiny-t2v", "family": "wan-tiny-t2v"}
    async with service.client() as client:
        await client.post("/v1/models/register", json={"alias": name, **wan})
        asked = {"prompt": f"a black hole {lang}", "model": name}
        video = (await client.post("/v1/videos", json=asked)).json()
        await client.delete(f"/v1/models/{name}")
    visitor = await browser.visitor(lang=lang)
    await visitor.enter(service.api_key)
    card = visitor.tab.locator(f"article[data-task={video['id']}]")
    await card.locator(".failure").wait_for()
    await card.get_by_text(more).click()
    await expect(card.locator(".failure")).to_contain_text(said, use_inner_text=True)
    assert await visitor.violations() == []
