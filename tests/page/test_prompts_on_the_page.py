"""Prompts made better on the page: the button, the wait, the new prompt, and what is said where it fails."""

import asyncio
import contextlib
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.page.conftest import Browser, expect
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")

BETTER = "A red square glides to the right over a plain white ground."


async def test_a_real_model_rewrites_a_prompt_that_can_be_changed_and_undone(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor(lang="zh")
    await visitor.enter(service.key_of())
    tab = visitor.tab
    prompt = tab.locator(".composer textarea").first
    improve = tab.get_by_role("button", name="润色")
    await expect(improve).to_have_attribute("aria-disabled", "true")
    is_seen = asyncio.Event()

    async def let_wait(route: Any) -> None:
        await is_seen.wait()  # a model that is awake may answer before anybody has seen that it is asked
        await route.continue_()

    await tab.route("**/v1/prompts/enhance", let_wait)
    await prompt.fill("红色方块向右移动")
    await improve.click()
    await tab.locator(".note .waking").wait_for()
    is_seen.set()
    await tab.get_by_text("已由 smollm2 改写").wait_for()
    for other in ("", "红色方块向右移动"):
        await expect(prompt).not_to_have_value(other)
    await tab.get_by_text("原提示词：红色方块向右移动").wait_for()  # noqa: RUF001
    assert await visitor.violations() == []
    await prompt.fill("my own words")
    await tab.get_by_role("button", name="撤销").click()
    await expect(prompt).to_have_value("红色方块向右移动")
    await expect(tab.locator(".composer .note")).to_have_count(0)
    assert visitor.complaints == []


async def test_where_it_fails_the_prompt_stays_and_that_is_said(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(is_refused=True)
    await visitor.enter(service.key_of())
    tab = visitor.tab

    async def refuse(route: Any) -> None:
        error = {
            "message": "smollm2 has not answered in 60 s.",
            "type": "server_error",
            "param": None,
            "code": "prompt_too_late",
        }
        await route.fulfill(status=503, json={"error": error})

    await tab.route("**/v1/prompts/enhance", refuse)
    prompt = tab.locator(".composer textarea").first
    await prompt.fill("a red square")
    await tab.get_by_role("button", name="Improve").click()
    await tab.get_by_text("was not rewritten and stays as it is").wait_for()
    await expect(prompt).to_have_value("a red square")
    assert await visitor.violations() == []
    await tab.get_by_role("button", name="Close").click()
    await expect(tab.locator(".composer .note")).to_have_count(0)


async def test_a_wait_is_seen_and_can_be_given_up(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.key_of())
    tab, asked = visitor.tab, list[Any]()

    async def hold(route: Any) -> None:
        asked.append(route)

    await tab.route("**/v1/prompts/enhance", hold)
    prompt = tab.locator(".composer textarea").first
    await prompt.fill("a red square")
    await tab.get_by_role("button", name="Improve").click()
    await tab.locator(".note .waking-time").wait_for()
    await tab.locator(".note").get_by_role("button", name="Cancel").click()
    await wait_until(lambda: len(asked) == 1, "the request")
    await tab.locator(".note").wait_for(state="detached")
    await expect(prompt).to_have_value("a red square")


async def test_whoever_goes_on_typing_keeps_her_words(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.key_of())
    tab, asked = visitor.tab, list[Any]()

    async def hold(route: Any) -> None:
        asked.append(route)

    await tab.route("**/v1/prompts/enhance", hold)
    prompt = tab.locator(".composer textarea").first
    await prompt.fill("a red square")
    await tab.get_by_role("button", name="Improve").click()
    await wait_until(lambda: len(asked) == 1, "the request")
    await prompt.fill("a red square, and more of my own")
    await tab.locator(".composer .note").wait_for(state="detached")
    with contextlib.suppress(Exception):  # it was given up
        await asked[0].fulfill(
            json={"object": "prompt.enhanced", "prompt": BETTER, "prompt_model": "smollm2"}
        )
    await tab.get_by_role("button", name="Improve").click()
    await wait_until(lambda: len(asked) == 2, "the second request")
    assert asked[1].request.post_data_json["prompt"] == "a red square, and more of my own"
    await asked[1].fulfill(json={"object": "prompt.enhanced", "prompt": BETTER, "prompt_model": "smollm2"})
    await tab.get_by_text("Rewritten by smollm2").wait_for()
    await expect(prompt).to_have_value(BETTER)
    await tab.locator(".examples .chip").first.click()  # what is said of the prompt goes with it
    await tab.locator(".composer .note").wait_for(state="detached")
    for other in ("", BETTER):
        await expect(prompt).not_to_have_value(other)
    assert visitor.complaints == []


@pytest.mark.parametrize(
    ("lang", "before", "failed"),
    [("en", "Before: a ball", "could not be improved"), ("zh", "原提示词：a ball", "未能润色")],  # noqa: RUF001
)
async def test_a_card_says_what_became_of_the_prompt(
    browser: Browser, service: Service, lang: str, before: str, failed: str
) -> None:
    key = service.key_of()
    async with service.client(key) as client:
        asked = {"prompt": "a ball", "steps": 4, "frames": 5}
        made = (await client.post("/v1/videos", json=asked)).json()
    visitor = await browser.visitor(lang=lang)
    error = {"code": "prompt_too_late", "message": "smollm2 has not answered in 60 s.", "params": {}}
    shown = [
        {**made, "prompt": BETTER, "original_prompt": "a ball"},
        {**made, "id": f"{made['id']}x", "enhance_error": error},
    ]

    async def tell(route: Any) -> None:
        page = {"object": "list", "data": shown, "first_id": None, "last_id": None, "has_more": False}
        await route.fulfill(json=page)

    await visitor.tab.route("**/v1/videos?*", tell)
    await visitor.enter(key)
    await visitor.tab.locator(".card-notice").get_by_text(before).wait_for()
    await visitor.tab.locator(".card-notice").get_by_text(failed).wait_for()
