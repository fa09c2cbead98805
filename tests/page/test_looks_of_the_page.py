"""Accessibility of every view, and its pace with much to show."""

import json
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.page.conftest import Browser, Visitor, expect, traced
from tests.page.views import furnish, tour
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_axe_finds_nothing_in_any_view_in_light_and_dark_and_the_console_is_silent(
    browser: Browser, service: Service
) -> None:
    await furnish(service)
    for size, theme, lang in (("wide", "light", "en"), ("phone", "dark", "zh")):
        visitor = await browser.visitor(size, theme, lang, draft={"prompt": ""}, is_refused=True)
        async for name in tour(visitor, service):
            assert await visitor.violations() == [], f"{name}, {theme}"
            width = await visitor.tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{name} is wider than a {size}"
        assert visitor.complaints == []


async def test_nothing_moves_for_those_who_want_it_calm(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    card = await visitor.ask_for("a red ring spinning")
    await card.locator("video").wait_for()
    await card.locator("video").evaluate(
        "v => v.readyState >= 3 || new Promise((ready) => v.addEventListener('canplay', ready))"
    )
    assert await card.locator("video").evaluate("video => video.paused && !video.autoplay")


async def test_language_and_colours_are_remembered(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.tab.goto(browser.url)
    await visitor.tab.get_by_role("button", name="中文").click()
    await expect(visitor.tab.locator("h1")).to_have_text("欢迎使用 Turnout")
    await visitor.tab.locator(".corner .icon-button").click()
    await visitor.tab.locator(".corner .icon-button").click()
    await visitor.tab.reload()
    await expect(visitor.tab.locator("h1")).to_have_text("欢迎使用 Turnout")
    await expect(visitor.tab.locator("html")).to_have_attribute("data-theme", "dark")


TASKS, LIVE, EVENTS = 320, 20, 5_000
LONGEST_TASK_MS = 200


def _video(i: int) -> dict[str, Any]:
    live = i < LIVE
    return {
        "id": f"video_{i:05d}",
        "object": "video",
        "model": "wan-tiny-t2v",
        "status": "in_progress" if live else "failed",
        "progress": 0,
        "created_at": 1_700_000_000 - i,
        "completed_at": None,
        "expires_at": None,
        "prompt": f"number {i}",
        "seconds": "2",
        "size": "128x128",
        "remixed_from_video_id": None,
        "error": None,
        "stage": "denoising" if live else None,
        "step": 0,
        "steps": EVENTS // LIVE,
        "queue_position": None,
        "eta_s": None,
        "attempt": 1,
        "failures": 0,
        "priority": "normal",
        "started_at": 1_700_000_000,
        "negative_prompt": "",
        "frames": 17,
        "fps": 8,
        "guidance": [4, 4],
        "shift": 5,
        "seed": i,
        "preview_url": None,
        "has_image": False,
        "favourite": i % 7 == 0,
        "tags": ["shapes"] if i % 5 == 0 else [],
        "batch": None,
        "guided_share": 1,
        "step_cache": 0,
        "fp8_attention": False,
    }


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("view", ["create", "library"])
async def test_300_tasks_and_5000_events_of_20_live_ones_stay_smooth_and_leave_nothing_behind(
    browser: Browser, service: Service, view: str
) -> None:
    """The page's own pace, so what it is told comes from here: a service would take hours for as many steps."""
    visitor = await browser.visitor(moving=True)
    videos = [_video(i) for i in range(TASKS)]
    sockets: list[Any] = []

    async def listed(route: Any) -> None:
        after = route.request.url.partition("after=")[2].partition("&")[0]
        start = int(after.removeprefix("video_")) + 1 if after else 0
        page = videos[start : start + 60]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"], "has_more": start + 60 < TASKS}
        await route.fulfill(json={"object": "list", "data": page, **ends})

    async def shown(route: Any) -> None:
        await route.fulfill(json=videos[int(route.request.url.rpartition("_")[2])])

    await visitor.tab.route("**/v1/videos/video_*", shown)
    await visitor.tab.route("**/v1/videos?*", listed)

    def watched(socket: Any) -> None:
        sockets.append(socket)
        socket.send(json.dumps({"object": "video.watching", "cursor": None}))

    await visitor.tab.route_web_socket("**/v1/videos/ws*", watched)
    await visitor.enter(service.api_key)
    await visitor.go(view)
    if view == "library":

        async def all_there() -> bool:
            await visitor.tab.mouse.wheel(0, 5_000)
            return await visitor.tab.locator(".tile").count() == TASKS

        await wait_until(all_there, "all pages of the library")
    await visitor.tab.locator(".card-prompt, .tile-prompt").nth(LIVE).wait_for(state="attached")
    before = await _heap_bytes(visitor)
    async with traced(visitor) as took_ms:
        await _tell(visitor, sockets[-1])
    assert max(took_ms) < LONGEST_TASK_MS
    assert await _heap_bytes(visitor) < before + 3_000_000
    if view == "create":
        steps = EVENTS // LIVE
        followed = visitor.tab.get_by_text(f"step {steps} of {steps}")
        await expect(followed, "all have followed").to_have_count(LIVE)
    assert visitor.complaints == []


async def _tell(visitor: Visitor, socket: Any) -> None:
    for n in range(EVENTS):
        event = {
            "id": f"{n + 1}-0",
            "cursor": f"{n + 1}-0",
            "object": "video.event",
            "type": "video.progress",
            "video": f"video_{n % LIVE:05d}",
            "created_at": 1.0,
            "status": "in_progress",
            "attempt": 1,
            "stage": "denoising",
            "step": n // LIVE + 1,
            "steps": EVENTS // LIVE,
            "eta_s": 3.0,
        }
        socket.send(json.dumps(event))
        if n % 200 == 0:
            await visitor.tab.wait_for_timeout(20)
    await visitor.tab.wait_for_timeout(500)  # for the last of them to be shown


async def _heap_bytes(visitor: Visitor) -> int:
    session = await visitor.tab.context.new_cdp_session(visitor.tab)
    await session.send("HeapProfiler.collectGarbage")
    used = (await session.send("Runtime.getHeapUsage"))["usedSize"]
    await session.detach()
    return int(used)
