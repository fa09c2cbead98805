"""What a person does with a video that is there: take its settings, ask for many, go on from it, compare, tidy up."""

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.conftest import wait_until
from tests.page.conftest import Browser, Visitor, expect, languages, rendered
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _asked(service: Service, prompt: str, count: int = 1) -> list[dict[str, Any]]:
    """The videos of a prompt, once there are so many: a card may be shown before the service has answered."""
    found: list[dict[str, Any]] = []
    async with service.client() as client:

        async def there() -> bool:
            listed = (await client.get("/v1/videos", params={"limit": 50})).json()["data"]
            found[:] = [video for video in listed if video["prompt"] == prompt]
            return len(found) >= count

        await wait_until(there, f"{count} of {prompt!r}")
    return found


def _card(visitor: Visitor, video: dict[str, Any]) -> Any:
    return visitor.tab.locator(f"article[data-task={video['id']}]")


async def test_a_double_click_makes_one_video(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    prompt = "a red circle for a double click"
    await visitor.tab.locator(".composer textarea").first.fill(prompt)
    await visitor.tab.locator(".composer-end button").dblclick()
    card = visitor.tab.locator("article[data-task]").filter(has_text=prompt)
    await card.first.locator("video").wait_for()
    assert len(await _asked(service, prompt)) == 1
    assert visitor.complaints == []


@languages(everyday="en")
async def test_all_settings_of_a_video_come_into_the_form(
    browser: Browser, service: Service, lang: str
) -> None:
    paper = io.BytesIO()
    Image.new("RGB", (64, 64), (30, 30, 200)).save(paper, "PNG")
    fields = {"size": "96x96", "frames": "9", "steps": "5", "guidance": "4", "shift": "3.5", "seed": "77"}
    fields |= {"negative_prompt": "green", "prompt": f"a blue square {lang}", "model": "wan-tiny-ti2v"}
    async with service.client() as client:
        files = {"input_reference": ("blue.png", paper.getvalue(), "image/png")}
        first = (await client.post("/v1/videos", data=fields, files=files)).raise_for_status().json()
    visitor = await browser.visitor(lang=lang)
    await visitor.enter(service.api_key)
    card = _card(visitor, first)
    await card.locator("video").wait_for()
    await card.get_by_role("button", name="套用参数" if lang == "zh" else "Use these settings").click()
    await visitor.tab.locator(".image-chosen img").wait_for()
    note = visitor.tab.locator(".composer .note")
    await expect(note).to_contain_text("shift 3.5")
    assert await visitor.violations() == []
    await visitor.ask_for(f"a blue circle {lang}")
    again = (await _asked(service, f"a blue circle {lang}"))[0]
    same = (
        "model",
        "size",
        "frames",
        "fps",
        "steps",
        "guidance",
        "shift",
        "seed",
        "negative_prompt",
        "has_image",
    )
    assert {name: again[name] for name in same} == {name: first[name] for name in same}
    await note.locator("button").click()
    await expect(note).to_have_count(0)
    assert visitor.complaints == []


async def test_four_seeds_are_one_card_that_unfolds_and_two_play_together(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor(moving=True)
    await visitor.enter(service.api_key)
    prompt = "a yellow star spinning four times"
    await visitor.tab.locator(".composer textarea").first.fill(prompt)
    await visitor.tab.locator(".composer input[value='4']").check()
    await visitor.tab.get_by_role("button", name="Create 4 videos").click()
    batch = visitor.tab.locator("article[data-batch]").filter(has_text=prompt)
    await batch.wait_for()
    made = await _asked(service, prompt, 4)
    assert len(made) == 4 and len({video["batch"] for video in made}) == 1
    assert sorted(video["seed"] for video in made) == [min(v["seed"] for v in made) + i for i in range(4)]
    await batch.get_by_text("4 of 4 done").wait_for()
    await batch.get_by_role("button", name="Show each").click()
    await expect(visitor.tab.locator(".batch-all article")).to_have_count(4)
    assert await visitor.violations() == []
    await batch.get_by_role("button", name="Compare").click()
    together = "() => { const [a, b] = document.querySelectorAll('.compare video'); return a && b"
    moves = f"{together} && !a.paused && !b.paused && a.currentTime > 0 && Math.abs(a.currentTime - b.currentTime) < 0.3 }}"
    await wait_until(lambda: visitor.tab.evaluate(moves), "both to play together")
    await visitor.tab.get_by_role("button", name="Pause both").click()
    stand = f"{together} && a.paused && b.paused && Math.abs(a.currentTime - b.currentTime) < 0.1 }}"
    await wait_until(lambda: visitor.tab.evaluate(stand), "both to stand at the same place")
    await visitor.tab.locator(".compare select").first.select_option(index=2)
    assert await visitor.violations() == []
    await visitor.tab.keyboard.press("Escape")
    await visitor.tab.reload()
    await batch.wait_for()  # they belong together after a reload, and in any other browser
    assert visitor.complaints == []


async def test_the_last_frame_becomes_the_first_of_the_next_clip(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    video = await rendered(service, "a red square moving to the right for the last frame", frames=9)
    await visitor.enter(service.api_key)
    card = _card(visitor, video)
    await card.locator("video").wait_for()
    await card.get_by_role("button", name="More").click()
    await visitor.tab.get_by_role("menuitem", name="Go on from its last frame").click()
    shown = visitor.tab.locator(".image-chosen img")
    await shown.wait_for()
    size = await shown.evaluate(
        "image => image.decode().then(() => `${image.naturalWidth}x${image.naturalHeight}`)"
    )
    assert size == video["size"]
    await expect(visitor.tab.locator(".composer select").first).to_have_value("wan-tiny-ti2v")
    await visitor.ask_for("it goes on")
    assert (await _asked(service, "it goes on"))[0]["has_image"]
    assert visitor.complaints == []


async def test_prompts_from_before_are_at_hand(browser: Browser, service: Service) -> None:
    await rendered(service, "a prompt to be found again")
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.tab.get_by_role("button", name="Prompts from before").click()
    assert await visitor.violations() == []
    await visitor.tab.get_by_role("menuitem", name="a prompt to be found again").click()
    prompt = visitor.tab.locator(".composer textarea").first
    await expect(prompt).to_have_value("a prompt to be found again")


@languages(everyday="zh")
async def test_several_are_downloaded_by_their_prompts_and_deleted_at_once(
    browser: Browser, service: Service, lang: str, tmp_path: Path
) -> None:
    for word in ("one", "two"):
        await rendered(service, f"tidy {lang} {word}", seed=5)
    visitor = await browser.visitor(lang=lang)
    await visitor.has_time_to_undo()
    await visitor.enter(service.api_key)
    await visitor.go("library")
    await visitor.tab.locator(".search input").fill(f"tidy {lang}")
    tiles = visitor.tab.locator(".tile")
    await expect(tiles).to_have_count(2)
    saved: list[Any] = []
    visitor.tab.on("download", lambda download: saved.append(download))
    for i in range(2):
        await tiles.nth(i).hover()
        await tiles.nth(i).locator("input[type=checkbox]").check()
    bar = visitor.tab.locator(".chosen")
    assert await visitor.violations() == []
    await bar.get_by_role("button", name="下载" if lang == "zh" else "Download").click()
    await wait_until(lambda: len(saved) == 2, "both files")
    names = {download.suggested_filename for download in saved}
    assert names == {f"tidy-{lang}-one-5.mp4", f"tidy-{lang}-two-5.mp4"}
    await bar.get_by_role("button", name="删除" if lang == "zh" else "Delete").click()
    await expect(tiles, "both go").to_have_count(0)
    await visitor.tab.get_by_role("button", name="撤销" if lang == "zh" else "Undo").click()
    await expect(tiles, "both come back").to_have_count(2)
    assert visitor.complaints == []


async def test_pictures_fill_their_tiles_at_any_width(browser: Browser, service: Service) -> None:
    await rendered(service, "a square that fills its tile")
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.go("library")
    await visitor.tab.locator(".tile").first.wait_for()
    filled = """width => innerWidth === width && [...document.querySelectorAll('.tile')].every(tile =>
        tile.clientWidth - tile.querySelector('.tile-picture').offsetWidth <= 1)"""
    for width in (1366, 1440, 1920):
        await visitor.tab.set_viewport_size({"width": width, "height": 768})
        await wait_until(
            lambda width=width: visitor.tab.evaluate(filled, width), f"all to be filled at {width}"
        )


@languages(everyday="en")
async def test_a_still_is_a_picture_that_a_clip_can_go_on_from(
    browser: Browser, service: Service, lang: str
) -> None:
    visitor = await browser.visitor(lang=lang, draft={"prompt": "", "steps": "4", "frames": 1})
    await visitor.enter(service.api_key)
    length = visitor.tab.locator(".composer input[type=range]")
    await expect(length).to_have_value("0")
    words = "生成图片" if lang == "zh" else "Create picture"
    await expect(visitor.tab.locator(".composer-end button")).to_contain_text(words)
    card = await visitor.ask_for(f"a still red square {lang}")
    picture = card.locator(".card-picture img[alt]:not(.card-preview)")
    await picture.wait_for()
    wide = await picture.evaluate("image => image.decode().then(() => image.naturalWidth)")
    assert f"{wide}x" in (await _asked(service, f"a still red square {lang}"))[0]["size"]
    assert await visitor.violations() == []
    await card.locator(".menu button").click()
    await visitor.tab.locator("[role=menuitem]").first.click()  # go on from its last frame
    await visitor.tab.locator(".image-chosen img").wait_for()
    await expect(length).not_to_have_value("0")
    assert visitor.complaints == []
