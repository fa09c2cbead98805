"""The operator's name, logo, footer and terms of use on the page, in real Chromium."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conftest import Stores, wait_until
from tests.gateways import Gateway, running, serving
from tests.page.conftest import SIZES, Browser, chromium_on, expect
from tests.people.test_site import ICP, site_in

from turnout.tenants.tenant_settings import GuestSettings

WORDS = {
    "en": {"try": "Try without an account", "terms": "Terms of use", "accept": "I have read"},
    "zh": {"try": "免登录试用", "terms": "使用条款", "accept": "我已阅读"},
}


@pytest.fixture
async def public_browser(stores: Stores, tmp_path: Path) -> AsyncIterator[tuple[Browser, Gateway]]:
    guests = GuestSettings()
    async with (
        running(stores, tmp_path, site=site_in(tmp_path), guests=guests) as gateway,
        serving(gateway.app, gateway.inside.chat.relay.protocol) as base,
        chromium_on(base) as browser,
    ):
        yield browser, gateway
        await browser.send_all_home()


async def test_the_page_is_the_operators_and_its_terms_are_accepted_first(
    public_browser: tuple[Browser, Gateway],
) -> None:
    browser, _ = public_browser
    for lang, size in zip(WORDS, SIZES, strict=True):
        words = WORDS[lang]
        visitor = await browser.visitor(size, lang=lang)
        tab = visitor.tab
        await tab.goto(browser.url)
        button = tab.get_by_role("button", name=words["try"])
        await button.wait_for()
        await tab.locator("h1", has_text="视频体验中心").wait_for()
        await expect(tab).to_have_title("视频体验中心")
        sign = tab.locator(".login-box img.sign")
        await wait_until(lambda sign=sign: sign.evaluate("i => i.complete && i.naturalWidth > 0"), "the logo")
        line = tab.locator(".site-footer").get_by_role("link", name=ICP.text)
        await expect(line).to_have_attribute("href", ICP.url)
        await expect(line).to_have_attribute("rel", "noopener noreferrer")
        await button.click()
        await tab.locator(".terms [role=alert]").wait_for()
        assert await visitor.violations() == []
        await tab.locator(".terms").get_by_role("button", name=words["terms"]).click()
        text = tab.locator("dialog .terms-text")
        await expect(text, "text, and nothing but text").to_contain_text("<script>alert(1)</script>")
        assert await visitor.violations() == []
        await tab.keyboard.press("Escape")
        await tab.get_by_label(words["accept"]).check()
        await button.click()
        await visitor.inside()
        await expect(tab.locator(".brand")).to_contain_text("视频体验中心")
        footer = tab.locator(".site-footer")
        await expect(footer).to_be_visible()
        assert await visitor.violations() == []
        await visitor.go("chat")
        await expect(footer, "it would be in the way of what is typed").to_have_count(0)
        await tab.goto("about:blank")  # or what the page still asks for would be refused
        await tab.context.clear_cookies()
        await tab.goto(browser.url)
        await expect(tab.get_by_label(words["accept"]), "once in a browser").to_be_checked()
        assert visitor.complaints == []
