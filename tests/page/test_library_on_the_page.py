"""How a person finds again what she made, and begins from it: favourites, tags, search, presets, frames from the library."""

import asyncio

import pytest
from tests.conftest import wait_until
from tests.page.conftest import Browser, Visitor, expect, languages, loaded, rendered
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _words(lang: str, english: str, chinese: str) -> str:
    return chinese if lang == "zh" else english


async def _entered(browser: Browser, service: Service, lang: str, size: str = "wide") -> Visitor:
    visitor = await browser.visitor(size, lang=lang)
    await visitor.enter(service.api_key)
    return visitor


@languages(everyday="en")
async def test_favourites_and_tags_find_a_video_again(browser: Browser, service: Service, lang: str) -> None:
    prompt, tag = f"a red square to be found {lang}", _words(lang, "keepers", "精选")
    await rendered(service, prompt)
    visitor = await _entered(browser, service, lang)
    await visitor.go("library")
    tile = visitor.tab.locator(".tile").filter(has_text=prompt)
    await tile.hover()
    star = tile.get_by_role("button", name=_words(lang, "Favourite", "收藏"))
    await star.click()
    await expect(star).to_have_attribute("aria-pressed", "true")
    await tile.locator(".tile-open").click()
    dialog = visitor.tab.locator("dialog").first
    await dialog.get_by_role("button", name=_words(lang, "More", "更多")).click()
    await visitor.tab.get_by_role("menuitem", name=_words(lang, "Edit tags", "编辑标签")).click()
    box = visitor.tab.get_by_label(_words(lang, "Tags of this video", "这个视频的标签"))
    await box.fill(f"#{tag} {lang}")
    assert await visitor.violations() == []
    await visitor.tab.keyboard.press("Enter")
    await dialog.get_by_text(f"#{tag}").wait_for()
    await visitor.tab.keyboard.press("Escape")
    await visitor.tab.reload()  # it is kept by the service
    await visitor.tab.get_by_role("button", name=f"#{tag}", exact=True).click()
    await expect(visitor.tab.locator(".tile-prompt")).to_have_text([prompt])
    assert await visitor.violations() == []
    await visitor.tab.locator(".search input").fill("")
    await visitor.tab.locator(".filters .button[aria-pressed]").click()
    await visitor.tab.locator(".filters .button[aria-pressed=true]").wait_for()
    await expect(visitor.tab.locator(".tile:has(.tile-star[aria-pressed=false])")).to_have_count(0)
    await expect(tile).to_have_count(1)
    assert visitor.complaints == []


async def test_search_finds_what_the_page_has_not_listed(browser: Browser, service: Service) -> None:
    """Of more videos than a page has, an old one is found by the service, and the rest is still listed whole and in order."""
    async with service.client() as client:
        made = await client.post("/v1/keys", json={"tenant": "many", "role": "user"})
        headers = {"Authorization": f"Bearer {made.json()['token']}"}
        few = asyncio.Semaphore(8)

        async def submit(n: int) -> None:
            async with few:
                body = {"prompt": "a needle" if n == 3 else f"straw {n}", "steps": 60}
                asked = (await client.post("/v1/videos", json=body, headers=headers)).raise_for_status()
                await client.post(f"/v1/videos/{asked.json()['id']}/cancel", headers=headers)

        for n in range(4):
            await submit(n)
        await asyncio.gather(*(submit(n) for n in range(4, 95)))
        visitor = await browser.visitor()
        await visitor.enter(made.json()["token"])
        await visitor.go("library")
        await visitor.tab.locator(".tile").nth(59).wait_for()
        await visitor.tab.locator(".search input").fill("needle")
        await expect(visitor.tab.locator(".tile-prompt")).to_have_text(["a needle"])
        await visitor.tab.locator(".search input").fill("")

        async def scrolled_to_all() -> bool:
            await visitor.tab.evaluate("scrollTo(0, document.body.scrollHeight)")
            return await visitor.tab.locator(".tile").count() == 95

        await wait_until(scrolled_to_all, "all of them")
        # Not `all_inner_texts`: a tile outside of the view is laid out late and has none until then.
        prompts = await visitor.tab.locator(".tile-prompt").all_text_contents()
        assert len(set(prompts)) == 95 and prompts[-1] == "straw 0" and prompts[-4] == "a needle"
        await visitor.tab.locator(".search input").fill("nothing like it")
        await visitor.tab.locator(".empty-title").wait_for()
        assert visitor.complaints == []


@languages(everyday="zh")
async def test_a_preset_is_saved_follows_to_another_browser_and_fills_the_form(
    browser: Browser, service: Service, lang: str
) -> None:
    name, title = _words(lang, "quick look", "快速预览"), _words(lang, "Presets", "预设")
    visitor = await _entered(browser, service, lang)
    await visitor.tab.locator(".composer summary").click()
    await visitor.tab.get_by_label(_words(lang, "Steps", "步数")).fill("6")
    await visitor.tab.get_by_label(_words(lang, "Negative prompt", "反向提示词")).fill("green")
    await visitor.tab.get_by_role("button", name=title).click()
    dialog = visitor.tab.locator("dialog")
    await dialog.locator("form input").fill(name)
    await visitor.tab.keyboard.press("Enter")
    await dialog.locator(".preset").filter(has_text=name).wait_for()
    assert await visitor.violations() == []
    other = await _entered(browser, service, lang, "phone")
    await other.tab.get_by_role("button", name=title).click()
    await other.tab.locator(".preset").filter(has_text=name).click()
    await other.tab.locator(".composer .note").get_by_text(name).wait_for()
    await other.tab.locator(".composer summary").click()
    await expect(other.tab.get_by_label(_words(lang, "Steps", "步数"))).to_have_value("6")
    await expect(other.tab.locator(".drawer textarea")).to_have_value("green")
    assert await other.violations() == []
    await dialog.get_by_role(
        "button", name=_words(lang, f"Delete the preset {name}", f"删除预设 {name}")
    ).click()
    await dialog.locator(".preset").filter(has_text=name).wait_for(state="detached")
    assert visitor.complaints == other.complaints == []


@languages(everyday="en")
async def test_a_frame_and_a_picture_from_the_library_begin_a_clip(
    browser: Browser, service: Service, lang: str
) -> None:
    clip, still = f"a blue circle clip {lang}", f"a blue circle still {lang}"
    await rendered(service, clip, frames=9)
    await rendered(service, still, frames=1)
    visitor = await _entered(browser, service, lang)
    await visitor.tab.locator(".composer select").first.select_option("wan-tiny-ti2v")
    open_it = visitor.tab.get_by_role("button", name=_words(lang, "From the library", "从作品中选取"))
    await open_it.click()
    dialog = visitor.tab.locator("dialog")
    await dialog.locator("input[type=search]").fill(clip)
    await dialog.get_by_role("img", name=clip).click()
    await loaded(dialog.locator("video"))
    await dialog.locator("input[type=range]").fill("4")
    assert await visitor.violations() == []
    await dialog.get_by_role("button", name=_words(lang, "Use this frame", "使用这一帧")).click()
    shown = visitor.tab.locator(".image-chosen img")
    await shown.wait_for()
    size = await shown.evaluate("one => one.decode().then(() => `${one.naturalWidth}x${one.naturalHeight}`)")
    assert size == "128x128"
    await visitor.tab.locator(".image-chosen button").click()
    await open_it.click()
    await dialog.locator("input[type=search]").fill(still)
    await expect(visitor.tab.locator(".pick")).to_have_count(1)
    assert await visitor.violations() == []
    await dialog.get_by_role("img", name=still).click()
    await shown.wait_for()
    card = await visitor.ask_for(f"it goes on {lang}")
    await card.locator("video").wait_for()
    assert visitor.complaints == []
