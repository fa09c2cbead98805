"""What an operator does on the page, against a real service."""

import httpx
import pytest
from tests.conftest import wait_until
from tests.page.conftest import Browser, Visitor
from tests.service import Service

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]


async def _operator(browser: Browser, service: Service, tab: str) -> Visitor:
    visitor = await browser.visitor()
    await visitor.enter(service.api_key)
    await visitor.go(f"operate/{tab}")
    return visitor


async def test_a_model_is_registered_with_words_for_a_mistake_and_removed(
    browser: Browser, service: Service
) -> None:
    visitor = await _operator(browser, service, "models")
    await visitor.tab.get_by_role("button", name="Register a model").click()
    form = visitor.tab.locator(".register")
    await form.locator("input[value=llamacpp]").check()
    await form.get_by_label("Name").fill("no such name!")
    await form.get_by_label("Weights").fill("builtin:smollm2")
    await form.locator("button[type=submit]").click()
    assert "Letters" in await form.locator(".field-error").inner_text()
    await form.get_by_label("Name").fill("from-the-page")
    await form.locator("button[type=submit]").click()
    entry = visitor.tab.locator(".entry").filter(has_text="from-the-page")
    await entry.wait_for()
    await entry.get_by_role("button", name="Remove").click()
    await visitor.tab.locator("dialog .button-danger").click()
    await entry.wait_for(state="detached")
    assert visitor.complaints == []


async def test_a_key_is_shown_once_and_revoked(browser: Browser, service: Service) -> None:
    visitor = await _operator(browser, service, "keys")
    await visitor.tab.get_by_role("button", name="Create a key").click()
    dialog = visitor.tab.locator("dialog")
    await dialog.get_by_label("Name").fill("for a test")
    await dialog.locator("button[type=submit]").click()
    token = await dialog.locator(".copyable code").inner_text()
    async with httpx.AsyncClient(
        base_url=service.url, headers={"Authorization": f"Bearer {token}"}
    ) as client:
        assert (await client.get("/v1/models")).status_code == 200
        await dialog.get_by_role("button", name="Done").click()
        assert token not in await visitor.tab.content()
        row = visitor.tab.locator("tr").filter(has_text="for a test")
        await row.get_by_role("button").click()
        await visitor.tab.locator("dialog .button-danger").click()
        await row.wait_for(state="detached")
        assert (await client.get("/v1/models")).status_code == 401


async def test_a_worker_is_drained_and_taken_back_in(browser: Browser, service: Service) -> None:
    visitor = await _operator(browser, service, "workers")
    await visitor.tab.get_by_role("button", name="Drain").click()
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers) as client:

        async def draining(wanted: bool) -> bool:
            return (await client.get("/workers")).json()["data"][0]["draining"] is wanted

        await wait_until(lambda: draining(True), "the worker to drain")
        await visitor.tab.get_by_role("button", name="Take back in").click()
        await wait_until(lambda: draining(False), "the worker to be back")


async def test_the_join_command_holds_a_new_worker_key(browser: Browser, service: Service) -> None:
    visitor = await _operator(browser, service, "workers")
    await visitor.tab.get_by_role("button", name="Add a worker").click()
    await visitor.tab.get_by_role("button", name="Make a worker key").click()
    command = await visitor.tab.locator(".copyable code").inner_text()
    assert "turnout worker --join" in command
    token = command.split("=")[1].split()[0]
    async with httpx.AsyncClient(
        base_url=service.url, headers={"Authorization": f"Bearer {token}"}
    ) as client:
        assert (await client.get("/v1/models")).status_code == 403  # a worker's key is for joining only


async def test_usage_of_the_tenant_is_listed(browser: Browser, service: Service) -> None:
    visitor = await _operator(browser, service, "keys")
    await visitor.go("create")
    card = await visitor.ask_for("a red circle for the books")
    await card.locator("video").wait_for(timeout=90_000)
    await visitor.go("operate/usage")
    await visitor.tab.locator("td").filter(has_text="wan-tiny-t2v").first.wait_for()
