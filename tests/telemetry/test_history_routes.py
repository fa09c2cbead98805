"""Queues and history, for operators."""

import time
from collections.abc import Mapping, Sequence

from tests.gateways import Gateway, bearer

from turnout.tasks.task_rules import Stage
from turnout.telemetry.history import STEP_S, History
from turnout.tenants.key_rules import Role


async def test_queues_are_told_by_model_and_tenant_to_admins_alone(gateway: Gateway) -> None:
    await gateway.submit()
    await gateway.submit()
    await gateway.gang.claim()
    other = bearer(await gateway.key("other"))
    await gateway.http.post("/v1/videos", json={"prompt": "a ball"}, headers=other)
    assert (await gateway.http.get("/v1/queues")).status_code == 403
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    rows = (await gateway.http.get("/v1/queues", headers=admin)).json()["data"]
    assert [(r["model"], r["tenant"], r["waiting"], r["running"]) for r in rows] == [
        ("wan-tiny-t2v", "acme", 1, 1),
        ("wan-tiny-t2v", "other", 1, 0),
    ]


async def test_what_was_seen_in_an_interval_is_shown(gateway: Gateway) -> None:
    await gateway.submit()
    task = await gateway.gang.claim()
    for step in (1, 2, 3):
        await gateway.gang.progress(task, Stage.DENOISING, step)
    await wait_steps(gateway, 2)
    await gateway.inside.telemetry.history.write()
    admin = bearer(await gateway.key("ops", Role.ADMIN))
    gateway.inside.telemetry.history._now = lambda: time.time() + STEP_S
    shown = (await gateway.http.get("/v1/history?minutes=2", headers=admin)).json()
    assert len(shown["at"]) == 4 and all(len(column) == 4 for column in shown["columns"].values())
    assert 1 in shown["columns"]["queue_length"]
    assert any(value is not None for value in shown["columns"]["step_seconds"])
    assert (await gateway.http.get("/v1/history?minutes=9999", headers=admin)).status_code == 400
    assert (await gateway.http.get("/v1/history")).status_code == 403


async def wait_steps(gateway: Gateway, count: int) -> None:
    from tests.conftest import wait_until

    await wait_until(
        lambda: gateway.inside.telemetry.request_figures.videos.step_totals()[0] >= count,
        "the steps to be seen",
    )


class Kept:
    """Intervals by number."""

    def __init__(self, found: Mapping[int, Mapping[str, float]]) -> None:
        self.found = found
        self.asked = 0

    async def read(self, intervals: Sequence[int]) -> list[Mapping[str, float]]:
        self.asked = len(intervals)
        return [self.found.get(interval, {}) for interval in intervals]


async def test_a_day_is_thinned_out_and_means_and_wakes_are_of_the_interval() -> None:
    kept = Kept(
        {
            98: {"woken": 3},
            99: {"woken": 5, "step_seconds:count": 4, "step_seconds:sum": 2, "queue_length": 7},
        }
    )
    history = History(kept, *([None] * 4), totals=dict, now=lambda: 100.0 * STEP_S)  # type: ignore[arg-type]
    at, columns = await history.read(1)
    assert at == [98 * STEP_S, 99 * STEP_S]
    assert columns["wakes"] == [None, 2] and columns["step_seconds"] == [None, 0.5]
    assert columns["queue_length"] == [None, 7]
    await history.read(24 * 60)
    assert kept.asked <= 721
