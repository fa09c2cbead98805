"""The dashboards: written from the code as it is, on metrics that exist; and, in a long test, every query of every panel
has data from a real `turnout up` under a small load."""

import asyncio
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.observability.monitored import FOLDER, Prometheus, ask, client, monitored, render
from tests.observability.test_rules import METRIC, SUFFIX, documented, rules

PANELS = [
    (path.stem, panel["title"], target["expr"])
    for path in sorted((FOLDER / "dashboards").glob("*.json"))
    for panel in json.loads(path.read_text())["panels"]
    for target in panel["targets"]
    if panel["type"] != "logs"
]


def test_the_json_is_what_the_code_writes(tmp_path: Path) -> None:
    runpy.run_path(str(FOLDER / "dashboards.py"))["main"]([str(tmp_path)])
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (FOLDER / "dashboards").iterdir()}
    assert written == kept, "run ./dev dashboards"
    assert set(written) == {f"{name}.json" for name in ("overview", "video", "chat", "fleet", "cost", "task")}


def test_every_metric_that_a_panel_names_exists() -> None:
    known, recorded = documented(), {rule["record"] for rule in rules() if "record" in rule}
    for board, title, expr in PANELS:
        named = {name if name in known else SUFFIX.sub("", name) for name in METRIC.findall(expr)}
        assert named <= known, (board, title)
        assert set(re.findall(r"turnout:[\w:]+", expr)) <= recorded, (board, title)


async def chats(http: Any) -> None:
    """Answers whole and streamed, and a model that is not there."""
    while True:
        assert (await ask(http)).status_code == 200
        assert (await ask(http, stream=True)).status_code == 200
        assert (await ask(http, "nobody")).status_code == 404
        await asyncio.sleep(1)


async def videos(http: Any) -> None:
    while True:
        video = (await render(http, steps=2)).json()["id"]
        await wait_until(lambda video=video: ended(http, video), "a video to end", 200)


async def ended(http: Any, video: str) -> bool:
    return (await http.get(f"/v1/videos/{video}")).json()["status"] in ("completed", "failed")


async def empty(prometheus: Prometheus) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for board, title, expr in PANELS:
        shown = expr.replace("$__rate_interval", "1m").replace("$model", ".*").replace("[1h]", "[1m]")
        if not await prometheus.query(shown):
            found.append((board, title, shown))
    return found


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_every_panel_has_data_and_every_rule_is_healthy(tmp_path: Path) -> None:
    async with monitored(tmp_path / "up") as (service, prometheus), client(service) as http:
        loading = asyncio.gather(chats(http), videos(http))
        try:
            missing: list[tuple[str, str, str]] = []

            async def complete() -> bool:
                nonlocal missing
                if loading.done():
                    loading.result()
                missing = await empty(prometheus)
                return not missing

            try:
                await wait_until(complete, "all panels to have data", 280)
            except BaseException:
                print("\n".join(map(str, missing)))
                raise
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        groups = (await prometheus.get("rules"))["groups"]
        broken = [r["name"] for group in groups for r in group["rules"] if r["health"] != "ok"]
        assert broken == []
        assert sum(len(group["rules"]) for group in groups) == len(rules())
