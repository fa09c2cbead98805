"""People on the page, in real Chromium: they come by an invite, see what is theirs, are kept out, and go."""

import json
import re
import zipfile
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.pace import patient
from tests.page.conftest import VISIBLE, Browser, Visitor, expect, languages
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORDS = {
    "en": {
        "invite": "Invite people",
        "make": "Make the link",
        "name": "Name",
        "enter": "Come in",
        "done": "Done",
    },
    "zh": {"invite": "邀请", "make": "生成链接", "name": "名字", "enter": "进入", "done": "完成"},
}
WORDS["en"] |= {
    "mine": "My account",
    "key": "Create a key",
    "elsewhere": "Log in elsewhere",
    "others": "End all others",
}
WORDS["zh"] |= {
    "mine": "我的账户",
    "key": "创建密钥",
    "elsewhere": "在别处登录",
    "others": "结束其他所有会话",
}
WORDS["en"] |= {"change": "Change", "disable": "Disable"}
WORDS["zh"] |= {"change": "管理", "disable": "停用"}
WORDS["en"] |= {"delete": "Delete my account", "gone": "Delete everything", "all": "Download all"}
WORDS["zh"] |= {"delete": "删除我的账户", "gone": "全部删除", "all": "下载全部"}

GUEST_WORDS = {
    "en": {"try": "Try without an account", "guest": "Guest"},
    "zh": {"try": "免登录试用", "guest": "访客"},
}


async def _shown_once(visitor: Visitor, done: str) -> str:
    dialog = visitor.tab.locator("dialog")
    text = await dialog.locator(".copyable code").inner_text()
    assert await visitor.violations() == []
    await dialog.get_by_role("button", name=done).click()
    await dialog.wait_for(state="detached")
    return text


async def _invite(operator: Visitor, words: dict[str, str], **limits: str) -> str:
    """The link of a new invite, made on the page."""
    await operator.go("operate/people")
    await operator.tab.get_by_role("button", name=words["invite"]).click()
    assert await operator.violations() == []
    for place, value in limits.items():
        await operator.tab.locator(".pair input").nth(int(place[-1])).fill(value)
    await operator.tab.get_by_role("button", name=words["make"]).click()
    return await _shown_once(operator, words["done"])


async def _come_by(visitor: Visitor, link: str, words: dict[str, str], name: str) -> None:
    await visitor.tab.goto(link)
    await visitor.tab.get_by_label(words["name"], exact=True).fill(name)
    assert await visitor.violations() == []
    await visitor.tab.get_by_role("button", name=words["enter"]).click()
    await visitor.inside()
    await expect(visitor.tab).not_to_have_url(re.compile("invite"))


@languages(everyday="zh")
async def test_a_person_comes_by_an_invite_has_an_account_and_deletes_it(
    browser: Browser, service: Service, lang: str
) -> None:
    words, name = WORDS[lang], f"Ada {lang}"
    operator = await browser.visitor(lang=lang)
    await operator.enter(service.api_key)
    link = await _invite(operator, words, at_0="5")
    ada = await browser.visitor(lang=lang)
    await _come_by(ada, link, words, name)
    card = await ada.ask_for("a red square moving right")
    await card.locator("video").wait_for()
    await ada.tab.get_by_role("link", name=name).click()
    account = ada.tab.locator(".account")
    await account.locator(".meter", has_text="5").wait_for()
    await account.locator(".tiles dd").first.wait_for()
    assert "t-p-" not in await account.inner_text(), "the name of a tenant of one's own says nothing"
    assert await ada.violations() == []
    key = await _own_key(ada, service, words)
    phone = await _on_the_phone(browser, ada, words, lang)
    row = operator.tab.locator("tbody tr").filter(has_text=name)
    await row.wait_for()
    assert await operator.violations() == []
    async with ada.tab.expect_download() as saving:
        await account.get_by_role("link", name=words["all"]).click()
    with zipfile.ZipFile(await (await saving.value).path()) as saved:
        assert json.loads(saved.read("account.json"))["person"]["name"] == name
        assert [n for n in saved.namelist() if n.endswith(".mp4")] and saved.testzip() is None
    await account.get_by_role("button", name=words["delete"]).click()
    dialog = ada.tab.locator("dialog")
    await expect(dialog.get_by_role("button", name=words["gone"])).to_be_disabled()
    await dialog.locator("input").fill(name)
    assert await ada.violations() == []
    await dialog.get_by_role("button", name=words["gone"]).click()
    await ada.tab.locator(".login-box").wait_for()
    await row.wait_for(state="detached")
    async with service.client(key) as client:
        assert (await client.get("/v1/videos")).status_code == 401
    assert ada.complaints == [] and operator.complaints == [] and phone.complaints == []


async def _own_key(visitor: Visitor, service: Service, words: dict[str, str]) -> str:
    """Made on the page, shown once, and good."""
    await visitor.tab.get_by_role("button", name=words["key"]).click()
    dialog = visitor.tab.locator("dialog")
    await dialog.locator("input").first.fill("a script")
    await dialog.locator("button[type=submit]").click()
    token = await _shown_once(visitor, words["done"])
    await visitor.tab.locator(".entry").filter(has_text="a script").wait_for()
    assert token not in await visitor.tab.content()
    async with service.client(token) as client:
        assert len((await client.get("/v1/videos")).json()["data"]) == 1
    return token


async def _on_the_phone(browser: Browser, ada: Visitor, words: dict[str, str], lang: str) -> Visitor:
    """She logs in on her phone by a link of her own, and ends that session from the other browser."""
    await ada.tab.get_by_role("button", name=words["elsewhere"]).click()
    link = await _shown_once(ada, words["done"])
    phone = await browser.visitor("phone", lang=lang, is_refused=True)
    await phone.tab.goto(link)
    await phone.inside()
    await phone.go("account")
    await phone.tab.locator(".entry").nth(2).wait_for()
    assert await phone.violations() == []
    await ada.tab.reload()
    await ada.tab.get_by_role("button", name=words["others"]).click()
    await phone.tab.locator(".login-box [role=alert]").wait_for()
    return phone


@languages(everyday="en")
async def test_a_person_logs_in_by_the_issuer(browser: Browser, service: Service, lang: str) -> None:
    visitor = await browser.visitor(lang=lang)
    await visitor.tab.goto(browser.url)
    button = visitor.tab.get_by_role("link", name="Test issuer")
    await button.wait_for()
    assert await visitor.violations() == []
    await button.click()
    await visitor.tab.get_by_role("button", name="Refuse").click()
    await visitor.tab.locator(".login-box [role=alert]").wait_for()
    await expect(visitor.tab).not_to_have_url(re.compile("login="))
    assert await visitor.violations() == []
    await button.click()
    await visitor.tab.get_by_label("Who").select_option("bob")
    await visitor.tab.get_by_role("button", name="Log in").click()
    await visitor.inside()
    await expect(visitor.tab).not_to_have_url(re.compile("code=|state="))
    await visitor.tab.reload()
    await visitor.tab.get_by_role("link", name="Bob").wait_for()
    kept = "Object.values(localStorage).concat(Object.values(sessionStorage), document.cookie).join()"
    assert "tk-" not in await visitor.tab.evaluate(kept)
    await visitor.tab.go_back()  # to the issuer's page, or the login's: nothing of it can be used again
    await visitor.tab.goto(f"{browser.url}/v1/login/oidc/callback?state=used&code=used")
    await visitor.inside()
    assert visitor.complaints == []


@languages(everyday="zh")
async def test_a_guest_comes_in_makes_a_video_and_leaves_nothing(
    browser: Browser, service: Service, lang: str
) -> None:
    words = GUEST_WORDS[lang]
    visitor = await browser.visitor("phone" if lang == "zh" else "wide", lang=lang)
    await visitor.tab.goto(browser.url)
    button = visitor.tab.get_by_role("button", name=words["try"])
    await button.wait_for()
    assert await visitor.violations() == []
    await button.click()
    await visitor.inside()
    card = await visitor.ask_for("a red square moving right")
    await card.locator("video").wait_for()
    await visitor.tab.reload()  # the cookie stays
    await visitor.go("account")
    account = visitor.tab.locator(".account")
    await account.get_by_role("heading", name=words["guest"]).wait_for()
    await account.locator(".meter", has_text="4").wait_for()
    assert await account.get_by_role("button", name=WORDS[lang]["key"]).count() == 0, "guests have no keys"
    assert await visitor.violations() == []
    other = await browser.visitor(lang=lang)
    await other.tab.goto(browser.url)
    await other.tab.get_by_role("button", name=words["try"]).click()
    await other.inside()
    await other.go("library")
    await other.tab.locator(".empty-title").wait_for()  # nothing of the first one's
    await account.get_by_role("button", name=WORDS[lang]["delete"]).click()
    dialog = visitor.tab.locator("dialog")
    await dialog.locator("input").fill(words["guest"])
    await dialog.get_by_role("button", name=WORDS[lang]["gone"]).click()
    await visitor.tab.locator(".login-box").wait_for()
    assert visitor.complaints == [] and other.complaints == []


@languages(everyday="en")
async def test_a_person_is_disabled_while_a_video_renders_and_a_chat_streams(
    browser: Browser, service: Service, lang: str
) -> None:
    name, words = f"Eve {lang}", WORDS[lang]
    operator = await browser.visitor(lang=lang)
    await operator.enter(service.api_key)
    link = await _invite(operator, words)
    eve = await browser.visitor(lang=lang, draft={**VISIBLE, "steps": "60"}, is_refused=True)
    await _come_by(eve, link, words, name)
    card = await eve.ask_for("a blue circle that never ends")
    await card.locator("img.card-preview").wait_for()
    talking = await eve.tab.context.new_page()
    await talking.goto(f"{browser.url}/#/chat")
    await talking.route("**/v1/chat/completions", _endless)
    await talking.locator(".chat-input textarea").fill("Count to a thousand.")
    await talking.keyboard.press("Enter")
    answer = talking.locator(".said-assistant .markdown")
    await answer.wait_for()
    await operator.tab.get_by_role("button", name=f"{words['change']} {name}").click()
    assert await operator.violations() == []
    await operator.tab.locator("dialog").get_by_role("button", name=words["disable"]).click()
    for tab in (eve.tab, talking):
        await tab.locator(".login-box [role=alert]").wait_for(timeout=patient(10) * 1000)
    async with service.client() as client:
        (person,) = (await client.get("/v1/people", params={"search": name})).json()["data"]
        assert person["disabled"]

        async def at_rest() -> bool:
            rows = (await client.get("/v1/queues")).json()["data"]
            return person["tenant"] not in {row["tenant"] for row in rows}

        await wait_until(at_rest, "her tasks to end")
    await operator.tab.locator("tbody tr").filter(has_text=name).locator(".badge-inline").wait_for()
    assert operator.complaints == []


async def _endless(route: Any) -> None:
    body = {**route.request.post_data_json, "max_tokens": 4_000, "ignore_eos": True}
    await route.continue_(post_data=json.dumps(body))
