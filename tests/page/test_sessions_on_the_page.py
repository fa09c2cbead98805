"""Logging in by a key or by the printed link, and other origins that try to act on the session."""

import asyncio
import io
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from PIL import Image
from tests.conftest import wait_until
from tests.pace import patient
from tests.page.conftest import Browser, expect, loaded
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")

# What another origin of the same host can try: cookies do not tell ports apart, so the browser sends ours along.
ATTACK = """<!doctype html><title>waiting</title>
<form id=f method=post action="URL/v1/videos" enctype="text/plain" target=frame><input name='{"prompt":"' value='stolen"}'></form>
<iframe name=frame></iframe><video id=v src="URL/v1/videos/VIDEO/content"></video>
<script>
const settled = [];
const send = (body, type) => fetch("URL/v1/videos", {method: "POST", credentials: "include", mode: type ? "cors" : "no-cors",
  headers: type ? {"Content-Type": type} : {}, body}).then(r => void settled.push("fetch " + r.type), () => void settled.push("fetch failed"));
const socket = new WebSocket("URL/v1/videos/ws".replace("http", "ws"));
const closed = new Promise(done => { socket.onclose = e => done("socket closed"); socket.onmessage = () => done("socket TALKS"); });
const submitted = new Promise(done => { document.querySelector("iframe").onload = () => done(); });
const played = new Promise(done => { v.onerror = () => done("video failed"); v.onloadeddata = () => done("video PLAYS"); });
f.submit();
Promise.all([send('{"prompt": "stolen"}'), send('{"prompt": "stolen"}', "application/json"), closed, played, submitted]).then(
  all => { document.title = settled.concat(all.filter(Boolean)).join(", "); });
</script>"""


@asynccontextmanager
async def other_origin(page: str) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(page)}\r\n\r\n"
        writer.write((head + page).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _new_link(service: Service) -> str:
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnout", "open", "--print", "--state-dir", str(service.state_dir)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(command.communicate(), patient(60))
    return out.decode().strip()


async def test_a_key_is_changed_for_a_session_that_stays_through_a_reload(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor(is_refused=True)
    await visitor.tab.goto(browser.url)
    await visitor.show_key_form()
    await visitor.tab.locator("input[type=password]").fill("tk-nobody.nothing")
    await visitor.tab.keyboard.press("Enter")
    await expect(visitor.tab.locator(".field-error")).to_contain_text("not valid")
    for remember in (False, True):
        await visitor.enter(service.api_key, remember=remember)
        kept = "Object.values(localStorage).concat(Object.values(sessionStorage), document.cookie).join()"
        assert "tk-" not in await visitor.tab.evaluate(kept), "no key stays in the page"
        (cookie,) = await visitor.tab.context.cookies()
        assert cookie["httpOnly"] and (cookie["expires"] > 0) is remember, (
            "gone with the browser, or in 30 days"
        )
        await visitor.tab.reload()
        await visitor.inside()
    await visitor.tab.locator("button[aria-label='Log out']").click()
    await visitor.tab.locator(".login-box").wait_for()
    await visitor.tab.reload()
    await visitor.tab.locator(".login-box").wait_for()
    # What a page before this version has kept.
    await visitor.tab.evaluate("key => localStorage.setItem('turnout.key', key)", service.api_key)
    await visitor.tab.reload()
    await visitor.inside()
    assert await visitor.tab.evaluate("localStorage.getItem('turnout.key')") is None


async def test_whoever_logs_in_next_finds_an_empty_form(browser: Browser, service: Service) -> None:
    """The picture of the one before was there, and her submission that was on its way: it was sent again as the next one's."""
    visitor, second = await browser.visitor(is_refused=True), service.key_of()
    tab = visitor.tab
    await visitor.enter(service.key_of())
    await tab.locator(".composer select").select_option("wan-tiny-ti2v")
    paper = io.BytesIO()
    Image.new("RGB", (64, 64), (200, 30, 30)).save(paper, "PNG")
    picture = {"name": "mine.png", "mimeType": "image/png", "buffer": paper.getvalue()}
    await tab.locator("input[type=file]").set_input_files(picture)
    await tab.locator(".image-chosen").wait_for()
    held: list[Any] = []

    async def answer(route: Any) -> None:
        if route.request.method == "POST" and not held:
            held.append(route)  # as if the gateway were away
        else:
            await route.continue_()

    await tab.route("**/v1/videos", answer)
    await tab.locator(".composer textarea").first.fill("a secret")
    await tab.keyboard.press("Control+Enter")
    await tab.locator("article").filter(has_text="a secret").wait_for()
    await wait_until(lambda: bool(held), "the submission")
    await tab.get_by_role("button", name="Log out").click()
    await visitor.show_key_form()  # in the same page: nothing is loaded anew
    await tab.locator("input[type=password]").fill(second)
    await tab.keyboard.press("Enter")
    await visitor.inside()
    await expect(tab.locator(".composer textarea").first).to_have_value("")
    await tab.locator(".composer select").select_option("wan-tiny-ti2v")
    await tab.locator("input[type=file]").wait_for(state="attached")
    await expect(tab.locator(".image-chosen")).to_have_count(0)
    await expect(tab.get_by_text("a secret")).to_have_count(0)
    await held[0].abort()  # which the page would try again, half a second later
    card = await visitor.ask_for("a red ball")
    await card.locator("video").wait_for()
    async with service.client(second) as client:
        made = (await client.get("/v1/videos")).json()["data"]
    assert [(video["prompt"], video["has_image"]) for video in made] == [("a red ball", False)]


async def test_a_link_that_is_pasted_into_an_open_tab_logs_in(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor(is_refused=True)
    await visitor.tab.goto(browser.url)
    await visitor.tab.locator(".login-box").wait_for()
    await visitor.tab.evaluate("link => { location.href = link; }", await _new_link(service))
    await visitor.inside()
    await expect(visitor.tab).not_to_have_url(re.compile("code"))
    await visitor.tab.evaluate("location.hash = '#code=' + 'x'.repeat(43)")
    await visitor.tab.locator(".login-box [role=alert]").wait_for()


async def test_a_key_and_a_link_log_in_on_the_chinese_page(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor("phone", lang="zh", is_refused=True)
    await visitor.tab.goto(browser.url)
    await visitor.show_key_form()
    await visitor.tab.locator("input[type=password]").fill("tk-nobody.nothing")
    await visitor.tab.keyboard.press("Enter")
    await expect(visitor.tab.locator(".field-error")).to_contain_text("密钥")
    await visitor.enter(service.api_key)
    await visitor.tab.reload()
    await visitor.tab.get_by_role("link", name="创作").wait_for()
    await visitor.tab.context.clear_cookies()
    await visitor.tab.goto("about:blank")  # or what was shown before would still be there
    await visitor.tab.goto(await _new_link(service))
    await visitor.tab.get_by_role("link", name="创作").wait_for()
    await visitor.tab.context.clear_cookies()
    await visitor.tab.evaluate("location.hash = '#code=' + 'x'.repeat(43)")
    await expect(visitor.tab.locator(".login-box [role=alert]")).to_contain_text("链接")
    assert visitor.complaints == []


async def test_the_printed_link_logs_in_once_and_leaves_no_trace(browser: Browser, service: Service) -> None:
    await wait_until(
        lambda: bool(re.search(r"http://\S+/#code=\S+", service.output.read_text())),
        "turnout up to print one, for two minutes",
    )
    async with service.client() as client:
        code = (await client.post("/v1/session/codes")).json()["code"]
    printed = f"{service.url}/#code={code}"  # as `turnout open --print` does
    visitor = await browser.visitor(moving=True)
    await visitor.tab.goto(printed)
    await visitor.inside()
    await expect(visitor.tab).not_to_have_url(re.compile("code"))
    stored = await visitor.tab.evaluate(
        "JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie"
    )
    assert "tk-" not in stored and "turnout_session" not in stored
    card = await visitor.ask_for("a red square moving right")
    await card.locator("video").wait_for()
    await wait_until(lambda: card.locator("video").evaluate("v => v.currentTime > 0"), "the video to play")
    await visitor.tab.reload()
    await visitor.inside()
    second = await browser.visitor(is_refused=True)
    await second.tab.goto(printed)
    await expect(second.tab.locator(".login-box [role=alert]")).to_contain_text("link", ignore_case=True)
    await visitor.tab.locator("button[aria-label='Log out']").click()
    await visitor.tab.locator(".login-box").wait_for()
    await visitor.tab.reload()
    await visitor.tab.locator(".login-box").wait_for()
    assert visitor.complaints == []


async def test_another_origin_can_do_nothing_with_the_session(browser: Browser, service: Service) -> None:
    visitor = await browser.visitor()
    await visitor.tab.goto(await _new_link(service))
    card = await visitor.ask_for("a green circle moving left")
    await card.locator("video").wait_for()
    video = await card.get_attribute("data-task")
    async with other_origin(ATTACK.replace("URL", service.url).replace("VIDEO", str(video))) as url:
        tab = await visitor.tab.context.new_page()
        await tab.goto(url)
        await tab.wait_for_function("document.title !== 'waiting'")
        assert sorted((await tab.title()).split(", ")) == [
            "fetch failed",
            "fetch opaque",
            "socket closed",
            "video failed",
        ]
        prompts = await visitor.tab.evaluate(
            "fetch('/v1/videos?limit=100').then(r => r.json()).then(p => p.data.map(v => v.prompt).join())"
        )
        assert "stolen" not in prompts and "green circle" in prompts


async def test_a_share_link_shows_one_video_to_anyone_until_it_is_revoked(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    card = await visitor.ask_for("a blue square moving up")
    await card.locator("video").wait_for()
    await card.get_by_role("button", name="Share").click()
    dialog = visitor.tab.locator("dialog")
    await dialog.get_by_role("button", name="Make a link").click()
    link = await dialog.locator(".copyable code").inner_text()
    assert "/#/share/" in link
    stranger = await browser.visitor(is_refused=True)
    await stranger.tab.goto(link)
    video = stranger.tab.locator("video")
    await loaded(video)
    await expect(stranger.tab.locator("figcaption")).to_contain_text("a blue square")
    await dialog.get_by_role("button", name="Revoke").click()
    await dialog.get_by_role("button", name="Revoke").wait_for(state="detached")
    await stranger.tab.reload()
    await stranger.tab.locator("[role=alert]").wait_for()
    await expect(video).to_have_count(0)
    assert visitor.complaints == [] and stranger.complaints == []
