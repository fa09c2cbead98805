"""The page as another machine of one's own network sees it: by plain http, where browsers leave out parts of what they have."""

import pytest
from tests.page.conftest import chromium_on, expect
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")

HERE = "127.0.0.1"  # browsers trust this, without TLS
ELSEWHERE = "turnout.test"


async def test_videos_chats_and_links_are_made_without_tls(service: Service) -> None:
    url = service.url.replace(HERE, ELSEWHERE)
    async with chromium_on(url, f"--host-resolver-rules=MAP {ELSEWHERE} {HERE}") as browser:
        visitor = await browser.visitor()
        await visitor.enter(service.key_of())
        assert not await visitor.tab.evaluate("isSecureContext")
        card = await visitor.ask_for("a red square moving right")
        await card.locator("video").wait_for()
        await card.get_by_role("button", name="Share").click()
        dialog = visitor.tab.locator("dialog")
        await dialog.get_by_role("button", name="Make a link").click()
        link = await dialog.locator(".copyable code").inner_text()
        await dialog.locator(".copyable button").click()
        await dialog.get_by_role("button", name="Copied").wait_for()
        await visitor.go("chat")
        box = visitor.tab.locator(".chat-input textarea")
        await box.press("Control+V")
        await expect(box).to_have_value(link)
        await visitor.take_answers_of(12)
        await box.fill("Say hello.")
        await visitor.tab.keyboard.press("Enter")
        answer = visitor.tab.locator("article.said-assistant")
        await visitor.tab.get_by_text("tokens/s").wait_for()
        await answer.get_by_role("button", name="Copy").first.click()
        await visitor.tab.locator(".toast").get_by_text("Copied").wait_for()
        # Chromium says of such an address that a header of ours counts for nothing there.
        assert [said for said in visitor.complaints if "Cross-Origin-Opener-Policy" not in said] == []
        await browser.send_all_home()
