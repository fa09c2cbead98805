"""The report of a plan in a browser: nothing of it is cut off."""

from pathlib import Path

import pytest
from playwright.async_api import async_playwright
from tests.page.conftest import CHROMIUM, FLAGS
from tests.plan.test_unserved import CROWDED

from turnout.plan.html_report import write_report
from turnout.plan.modes import PlanMode
from turnout.plan.search import search, with_target

pytestmark = pytest.mark.timeout(180)

_CUT_OFF = """() => [...document.querySelectorAll("svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 0.5 || box.right > frame.right + 0.5 || box.bottom > frame.bottom + 0.5;
  }).map(text => text.textContent);
})"""
_LAST_CELLS = """() => [...document.querySelectorAll("table tr")].map(row => {
  const box = row.lastElementChild.getBoundingClientRect();
  return [row.lastElementChild.textContent, box.right <= document.querySelector(".wide").getBoundingClientRect().right];
})"""


async def test_no_label_and_no_column_of_the_report_is_cut_off(tmp_path: Path) -> None:
    target = with_target(CROWDED, 10**6)
    found = search(target, Path(), [PlanMode.RESIDENT, PlanMode.ZERO], lambda _title, _share: None)
    file = tmp_path / "report.html"
    write_report(file, target, [(one.setup, one.outcome) for one in found.tried], found)
    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            tab = await chromium.new_page(viewport={"width": 1280, "height": 900})
            await tab.goto(file.as_uri())
            assert await tab.evaluate(_CUT_OFF) == []
            cells = await tab.evaluate(_LAST_CELLS)
            assert cells[0][0] == "REFUSED" and all(seen for _, seen in cells), cells
            await tab.screenshot(path=tmp_path / "report.png", full_page=True)
        finally:
            await chromium.close()
