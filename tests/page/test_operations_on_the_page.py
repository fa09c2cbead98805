"""What an operator sees across tenants, and does about it: the queue, logs, costs, the audit log."""

import csv
import io
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.page.conftest import Browser, Visitor, expect, languages
from tests.service import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _words(lang: str, english: str, chinese: str) -> str:
    return chinese if lang == "zh" else english


async def _operator(browser: Browser, service: Service, tab: str, lang: str) -> Visitor:
    visitor = await browser.visitor(lang=lang)
    await visitor.enter(service.api_key)
    await visitor.go(f"operate/{tab}")
    return visitor


async def _asked_by(service: Service, tenant: str, many: int, **fields: Any) -> list[str]:
    async with service.client() as client:
        key = (await client.post("/v1/keys", json={"tenant": tenant, "role": "user"})).json()["token"]
        body = {"prompt": "private words", "steps": 100, **fields}  # to be there until it is cancelled
        headers = {"Authorization": f"Bearer {key}"}
        return [
            (await client.post("/v1/videos", json=body, headers=headers)).json()["id"] for _ in range(many)
        ]


async def test_no_column_is_out_of_sight_on_a_laptop(browser: Browser, service: Service) -> None:
    """Where one entry tells much, when it happened stood beyond the edge."""
    async with service.client() as client:
        (await client.post("/v1/keys", json={"name": "for a class " * 8})).raise_for_status()
    visitor = await _operator(browser, service, "audit", "en")
    await visitor.tab.set_viewport_size({"width": 1366, "height": 768})
    await visitor.tab.locator("tbody tr").filter(has_text="for a class").first.wait_for()
    hidden = (
        "[...document.querySelectorAll('.table-box')].filter(box => box.scrollWidth > box.clientWidth).length"
    )
    assert await visitor.tab.evaluate(hidden) == 0


@languages(everyday="zh")
async def test_everybodys_tasks_are_seen_in_order_and_cancelled_and_their_logs_are_read(
    browser: Browser, service: Service, lang: str
) -> None:
    ids = [*await _asked_by(service, f"one-{lang}", 2), *await _asked_by(service, f"two-{lang}", 1)]
    visitor = await _operator(browser, service, "tasks", lang)
    rows = visitor.tab.locator("tbody tr")
    await rows.filter(has_text=ids[1]).wait_for()
    assert "private words" not in await visitor.tab.content()
    shown = await rows.all_inner_texts()
    two, last = (next(i for i, row in enumerate(shown) if one in row) for one in (ids[2], ids[1]))
    assert two < last, "tenants take turns"
    assert await visitor.violations() == []
    await rows.filter(has_text=ids[1]).get_by_role("link").click()
    await expect(visitor.tab.locator(".log p").filter(has_text="task submitted")).to_contain_text(ids[1])
    assert await visitor.violations() == []
    await visitor.tab.locator("section input").fill("")
    await visitor.tab.get_by_role("combobox").select_option("manager")
    await wait_until(lambda: _all_of(visitor, "manager"), "lines of the manager alone")
    await visitor.go("operate/tasks")
    for one in reversed(ids):
        await visitor.tab.get_by_role("button", name=_words(lang, f"Cancel {one}", f"取消 {one}")).click()
        await rows.filter(has_text=one).wait_for(state="detached")
    await visitor.go("operate/audit")
    await visitor.tab.locator("input[type=search]").fill(ids[0])
    await expect(rows, "that entry alone").to_have_count(1)
    await expect(rows).to_contain_text("task.cancelled")
    assert await visitor.violations() == []
    await visitor.tab.locator("input[type=search]").fill("nothing like it")
    await visitor.tab.locator(".empty-title").wait_for()
    assert visitor.complaints == []


async def _all_of(visitor: Visitor, part: str) -> bool:
    parts = await visitor.tab.locator(".log b").all_inner_texts()
    return set(parts) == {part}


@languages(everyday="en")
async def test_usage_is_drawn_by_day_and_saved_as_csv(browser: Browser, service: Service, lang: str) -> None:
    [one] = await _asked_by(service, f"paying-{lang}", 1, steps=4, frames=5)
    async with service.client() as client:

        async def booked() -> bool:
            used = (await client.get("/v1/usage")).json()["data"]
            return any(row["tenant"] == f"paying-{lang}" and row["render_seconds"] > 0 for row in used)

        await wait_until(booked, f"the use of {one}", 90)
    visitor = await _operator(browser, service, "usage", lang)
    await visitor.tab.locator(".bar i").first.wait_for()
    await expect(visitor.tab.locator(".bar")).to_have_count(7)
    await visitor.tab.locator(".bars input[value=tenant]").check()
    await visitor.tab.locator("tbody").get_by_text(f"paying-{lang}").wait_for()
    assert await visitor.violations() == []
    async with visitor.tab.expect_download() as download:
        await visitor.tab.get_by_role("link", name="CSV").click()
    path = await (await download.value).path()
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert f"paying-{lang}" in {row["tenant"] for row in rows}
    assert visitor.complaints == []


async def test_on_a_phone_the_open_tab_is_in_sight_and_no_label_is_broken(
    browser: Browser, service: Service
) -> None:
    visitor = await browser.visitor("phone")
    await visitor.enter(service.api_key)
    for name in ("audit", "overview", "logs"):
        await visitor.go(f"operate/{name}")
        here = visitor.tab.locator(f".tabs a[href='#/operate/{name}'][aria-current=page]")
        await expect(here).to_be_in_viewport(ratio=0.99)
    await visitor.go("operate/audit")
    await visitor.tab.locator("tbody tr").first.wait_for()
    wide = await visitor.tab.locator("td.long").first.evaluate(
        "cell => cell.offsetWidth / cell.closest('tr').offsetWidth"
    )
    assert wide > 0.8, "a long value has the whole line"
