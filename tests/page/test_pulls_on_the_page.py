"""An operator pulls a model and sets a budget, on a service that has a hub and prices of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.engines.fake_hub import FakeHub, fake_hub
from tests.page.conftest import Browser, expect, languages, open_browser
from tests.service import Service, running_service

pytestmark = pytest.mark.asyncio(loop_scope="session")

GGUF = "Qwen3-0.6B-Q8_0.gguf"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def furnished(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Service, Browser, FakeHub]]:
    folder: Path = tmp_path_factory.mktemp("pulls")
    with fake_hub({GGUF: b"GGUF" * 500_000}) as hub:
        environ = {"HF_ENDPOINT": hub.url, "MODELSCOPE_ENDPOINT": hub.url}
        async with (
            running_service(folder, environ, gpu_prices={"NVIDIA H200": 2.5}) as service,
            open_browser(service) as browser,
        ):
            yield service, browser, hub


@languages(everyday="en")
async def test_a_model_is_judged_pulled_cancelled_gone_on_with_and_added(
    furnished: tuple[Service, Browser, FakeHub], lang: str
) -> None:
    service, browser, hub = furnished
    zh = lang == "zh"
    hub.stall = (GGUF, 1_000_000)
    visitor = await browser.visitor(lang=lang)
    await visitor.enter(service.api_key)
    await visitor.go("operate/models")
    await visitor.tab.get_by_role("button", name="下载模型" if zh else "Pull a model").click()
    dialog = visitor.tab.locator("dialog")
    await expect(dialog.locator(".preset")).to_have_count(9)
    assert await visitor.violations() == []
    await dialog.locator(".preset").filter(has_text="qwen3-0.6b").click()
    await dialog.locator(".note").get_by_text("权重 2 MiB" if zh else "2 MiB of weights").wait_for()
    assert await visitor.violations() == []
    await dialog.locator(".button-primary").click()
    entry = visitor.tab.locator(".entry").filter(has_text="Qwen/Qwen3-0.6B-GGUF")
    await entry.locator("progress").wait_for()
    await visitor.tab.reload()  # the service pulls, not the page
    await entry.get_by_text("MB / 2 MB" if zh else "MB of 2 MB").wait_for()
    assert await visitor.violations() == []
    await entry.get_by_role("button", name="取消下载" if zh else "Cancel pulling").click()
    await entry.get_by_text("已取消" if zh else "Cancelled").wait_for()
    hub.stall = None
    await entry.get_by_role("button", name="继续下载" if zh else "Go on pulling").click()
    await entry.get_by_role("button", name="添加到模型" if zh else "Add to the models").click()
    await visitor.tab.locator(".entry").filter(has_text="llama.cpp").filter(has_text="qwen3-0.6b").wait_for()
    await entry.get_by_role("button", name="移除记录" if zh else "Forget").click()
    await visitor.tab.locator("#pulls-title").wait_for(state="detached")
    assert visitor.complaints == []
    async with service.client() as client:
        await client.delete("/v1/models/qwen3-0.6b")
    for path in (service.state_dir / "models/Qwen/Qwen3-0.6B-GGUF").iterdir():
        path.unlink()
    await browser.send_all_home()


@pytest.mark.parametrize("lang", ["en", "zh"])
async def test_why_a_model_is_not_to_be_had_is_said_in_the_readers_language(
    furnished: tuple[Service, Browser, FakeHub], lang: str
) -> None:
    service, browser, _ = furnished
    zh = lang == "zh"
    says = "该模型仓库中没有这个模型" if zh else "no such model at this hub"
    async with service.client() as client:
        pull = (await client.post("/v1/pulls", json={"repo": "org/none"})).json()
        visitor = await browser.visitor(lang=lang)
        await visitor.enter(service.api_key)
        await visitor.go("operate/models")
        await visitor.tab.locator(".entry").filter(has_text="org/none").get_by_text(says).wait_for()
        await visitor.tab.get_by_role("button", name="下载模型" if zh else "Pull a model").click()
        dialog = visitor.tab.locator("dialog")
        await dialog.locator("form input").fill("org/other")
        await dialog.get_by_role("button", name="检查" if zh else "Check").click()
        await dialog.get_by_text(says).wait_for()
        await client.delete(f"/v1/pulls/{pull['id']}")
    await browser.send_all_home()


@languages(everyday="zh")
async def test_a_budget_is_set_changed_and_removed(
    furnished: tuple[Service, Browser, FakeHub], lang: str
) -> None:
    service, browser, _ = furnished
    zh = lang == "zh"
    visitor = await browser.visitor(lang=lang)
    await visitor.enter(service.api_key)
    await visitor.go("operate/usage")
    await visitor.tab.get_by_role("button", name="设置预算" if zh else "Set a budget").click()
    dialog = visitor.tab.locator("dialog")
    await dialog.locator("input").first.fill(f"acme-{lang}")
    await dialog.locator("input[type=number]").fill("250")
    assert await visitor.violations() == []
    await dialog.locator("button[type=submit]").click()
    entry = visitor.tab.locator(".entry").filter(has_text=f"acme-{lang}")
    await entry.get_by_text("250 USD").wait_for()
    await entry.get_by_role("button", name="修改" if zh else "Change").click()
    await dialog.locator("input[type=number]").fill("300")
    await dialog.locator("input[value=soft]").check()
    await dialog.locator("button[type=submit]").click()
    await entry.get_by_text("300 USD").wait_for()
    await entry.get_by_text("仅提醒" if zh else "only warns").wait_for()
    assert await visitor.violations() == []
    await entry.get_by_role("button", name="移除" if zh else "Remove").click()
    await entry.wait_for(state="detached")
    assert visitor.complaints == []
    await browser.send_all_home()
