"""What an operator does on the page, against a real service."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.pace import patient
from tests.page.conftest import Browser, Visitor, expect
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def _operator(browser: Browser, service: Service, tab: str) -> Visitor:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.go(f"operate/{tab}")
    return visitor


async def test_a_model_is_registered_woken_stopped_and_removed(browser: Browser, service: Service) -> None:
    visitor = await _operator(browser, service, "models")
    visitor.is_refused = True  # the first name is
    await visitor.tab.get_by_role("button", name="Register a model").click()
    form = visitor.tab.locator(".register")
    await form.locator("input[value=llamacpp]").check()
    await form.get_by_label("Name").fill("no such name!")
    await form.get_by_label("Weights").fill("builtin:smollm2")
    await form.locator("button[type=submit]").click()
    await expect(form.locator(".field-error")).to_contain_text("Letters")
    await form.get_by_label("Name").fill("from-the-page")
    await form.locator("button[type=submit]").click()
    entry = visitor.tab.locator(".entry").filter(has_text="from-the-page")
    await entry.wait_for()
    await entry.get_by_role("button", name="Wake now").click()
    await entry.get_by_text("Ready", exact=True).wait_for()
    await entry.get_by_text("1 replica ready").wait_for()
    await entry.get_by_role("button", name="Stop now").click()
    await entry.get_by_text("Asleep", exact=True).wait_for()
    await entry.get_by_text("to wake").wait_for()  # how long it took is remembered
    await entry.get_by_role("button", name="Remove").click()
    await visitor.tab.locator("dialog .button-danger").click()
    await entry.wait_for(state="detached")
    assert visitor.complaints == []


@pytest.mark.parametrize(
    ("lang", "said"), [("en", "is registered, but cannot run now"), ("zh", "但目前无法运行")]
)
async def test_a_model_that_nobody_can_run_is_registered_and_that_is_said(
    browser: Browser, service: Service, lang: str, said: str
) -> None:
    visitor = await browser.visitor(lang=lang)
    await visitor.enter(service.api_key)
    await visitor.go("operate/models")
    await visitor.tab.locator(".row-spread .button-primary").click()
    form = visitor.tab.locator(".register")
    await form.locator("input[value=llamacpp]").check()
    await form.locator("input[type=text], input:not([type])").first.fill(f"vast-{lang}")
    await form.get_by_label("权重" if lang == "zh" else "Weights").fill("builtin:smollm2")
    await form.get_by_label("每副本 GPU 数" if lang == "zh" else "GPUs of a replica").fill("64")
    await form.locator("button[type=submit]").click()
    await visitor.tab.get_by_text(said).wait_for()
    async with service.client() as client:
        await client.delete(f"/v1/models/vast-{lang}")
    assert visitor.complaints == []


async def test_a_key_is_shown_once_and_revoked(browser: Browser, service: Service) -> None:
    visitor = await _operator(browser, service, "keys")
    await visitor.tab.get_by_role("button", name="Create a key").click()
    dialog = visitor.tab.locator("dialog")
    await dialog.get_by_label("Name").fill("for a test")
    await dialog.locator("button[type=submit]").click()
    token = await dialog.locator(".copyable code").inner_text()
    async with service.client(token) as client:
        assert (await client.get("/v1/models")).status_code == 200
        await dialog.get_by_role("button", name="Done").click()
        await dialog.wait_for(state="detached")
        assert token not in await visitor.tab.content()
        row = visitor.tab.locator("tr").filter(has_text="for a test")
        await row.get_by_role("button").click()
        await visitor.tab.locator("dialog .button-danger").click()
        await row.wait_for(state="detached")
        assert (await client.get("/v1/models")).status_code == 401
    visitor.is_refused = True
    await visitor.tab.get_by_role("button", name="Revoke made by turnout up").click()
    await visitor.tab.locator("dialog .button-danger").click()
    await visitor.tab.locator("dialog [role=alert]").wait_for()
    assert await visitor.violations() == []
    await visitor.tab.keyboard.press("Escape")
    await visitor.tab.locator("dialog").wait_for(state="detached")


async def test_the_copied_command_joins_a_worker_and_the_page_drains_and_evicts_it(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    visitor = await _operator(browser, service, "workers")
    await visitor.tab.get_by_role("button", name="Add a worker").click()
    await visitor.tab.get_by_role("button", name="Make the command").click()
    dialog = visitor.tab.locator("dialog")
    await dialog.get_by_text("Waiting for the machine").wait_for()
    command = await visitor.tab.locator(".copyable code").inner_text()
    token = command.split("=")[1].split()[0]
    assert token.startswith("jc-") and f"--join {service.url}" in command
    async with service.client(token) as client:
        assert (await client.get("/v1/models")).status_code == 401  # a code is for joining only
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    worker = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        f"{command.replace(' turnout ', ' exec turnout ')} --id from-the-page --listen-port 0 --state-dir {tmp_path}",
        env={**os.environ, "PATH": path},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await dialog.get_by_text("from-the-page has joined").wait_for()
        await dialog.get_by_text("Could run:").wait_for()
        await expect(dialog.locator(".facts")).to_contain_text("wan-tiny-t2v")
        await expect(dialog.locator(".findings")).to_contain_text("No vLLM")
        assert await visitor.violations() == []
        await visitor.tab.keyboard.press("Escape")
        await dialog.wait_for(state="detached")
        assert token not in await visitor.tab.content()
        entry = visitor.tab.locator(".entry").filter(has_text="from-the-page")
        await entry.get_by_text("Alive").wait_for()
        for order, draining in (("Drain", True), ("Take back in", False)):
            await entry.get_by_role("button", name=order).click()
            await wait_until(lambda draining=draining: _drains(service, draining), order)
        await entry.get_by_role("button", name="Evict").click()
        await visitor.tab.locator("dialog .button-danger").click()
        await entry.wait_for(state="detached")
        await asyncio.wait_for(worker.wait(), patient(60))
    finally:
        if worker.returncode is None:
            worker.kill()
    assert visitor.complaints == []


async def _drains(service: Service, wanted: bool) -> bool:
    async with service.client() as client:
        workers = (await client.get("/workers")).json()["data"]
    return [w["draining"] for w in workers if w["name"] == "from-the-page"] == [wanted]


async def test_usage_of_the_tenant_is_listed(browser: Browser, service: Service) -> None:
    visitor = await _operator(browser, service, "keys")
    await visitor.go("create")
    card = await visitor.ask_for("a red circle for the books")
    await card.locator("video").wait_for()
    await visitor.go("operate/usage")
    await visitor.tab.locator("td").filter(has_text="wan-tiny-t2v").first.wait_for()
