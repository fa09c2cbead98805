"""What operators see."""

import asyncio
import time
from dataclasses import replace

import pytest
from tests.conftest import make_task, wait_until
from tests.gateway.conftest import Gateway

from turnout.domain.errors import Unavailable
from turnout.domain.slots import GangReport, RankReport
from turnout.domain.tasks import Claimed, Finished, GangId, Interrupted, Result, Stage, evolve
from turnout.gateway.videos.time_estimates import TimeEstimates
from turnout.ports.events import Recorded


async def away(*_: object, **__: object) -> None:
    raise Unavailable("It did not answer.", retry_after_s=1.0)


async def test_health_and_readiness_need_no_key(gateway: Gateway) -> None:
    del gateway.http.headers["authorization"]
    await gateway.stores.mutex.hold("manager", "m1", 60)
    assert (await gateway.http.get("/health")).json()["status"] == "ok"
    ready = await gateway.http.get("/ready")
    assert (ready.status_code, ready.json()) == (
        200,
        {"status": "ready", "parts": {"redis": "ok", "blobs": "ok", "manager": "ok"}, "gangs": []},
    )


async def test_gangs_on_a_cluster_are_told_without_where_they_are(gateway: Gateway) -> None:
    reports = gateway.stores.gangs
    ranks = (RankReport(0, "n1", "192.0.2.7", 11), RankReport(1, "n2", "192.0.2.8", 12))
    gang = GangReport(GangId("ray-wan-tiny-t2v-0-a"), "wan-tiny-t2v", 0, time.time(), time.time(), 1, ranks)
    await reports.put(gang)
    await reports.put(replace(gang, gang=GangId("ray-wan-tiny-t2v-1-b"), ranks=(RankReport(0), ranks[1])))
    await reports.put(replace(gang, gang=GangId("ray-wan-tiny-t2v-2-c"), at=time.time() - 60))
    ready = await gateway.http.get("/ready")
    assert ready.json()["gangs"] == [
        {"model": "wan-tiny-t2v", "state": "formed", "ranks": 2, "nodes": 2},
        {"model": "wan-tiny-t2v", "state": "starting", "ranks": 2, "nodes": 1},
    ]
    assert "192.0.2.7" not in ready.text
    figures = (await gateway.http.get("/metrics")).text
    assert 'turnout_gangs{model="wan-tiny-t2v",state="formed"} 1.0' in figures
    assert 'turnout_gangs{model="wan-tiny-t2v",state="starting"} 1.0' in figures
    assert 'turnout_gang_nodes{model="wan-tiny-t2v"} 2.0' in figures


@pytest.mark.parametrize("part", ["redis", "blobs"])
async def test_readiness_says_which_part_is_down(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    broken = {"redis": (gateway.stores.backlog, "totals"), "blobs": (gateway.blobs, "head")}
    owner, method = broken[part]
    monkeypatch.setattr(owner, method, away)
    await gateway.stores.mutex.hold("manager", "m1", 60)
    ready = await gateway.http.get("/ready")
    assert ready.status_code == 503
    assert ready.json()["parts"][part] == "did not answer"
    assert list(ready.json()["parts"].values()).count("ok") == 2
    assert (await gateway.http.get("/health")).status_code == 200


async def test_a_missing_manager_is_told_and_does_not_close_the_gateway(gateway: Gateway) -> None:
    ready = await gateway.http.get("/ready")
    assert (ready.status_code, ready.json()["parts"]["manager"]) == (200, "did not answer")


async def submit_until_heard(gateway: Gateway) -> int:
    """How many tasks were submitted until the gateway, which tails events from its start on, counted the first."""
    for count in range(1, 100):
        await gateway.submit()
        for _ in range(20):
            if "turnout_event_lag_seconds_count 1.0" in (await gateway.http.get("/metrics")).text:
                return count
            await asyncio.sleep(0.02)
    raise AssertionError("no event was ever heard of")


async def test_metrics_show_tasks_queues_steps_and_requests(gateway: Gateway) -> None:
    early = await submit_until_heard(gateway)
    await gateway.submit()
    await gateway.submit()
    task = await gateway.gang.claim()
    for step in range(1, 4):
        await gateway.gang.progress(task, Stage.DENOISING, step)
    await gateway.gang.say(task, Interrupted(time.time(), task.attempt, "rank 1 died"))
    await gateway.gang.finish(await gateway.gang.claim())
    await gateway.http.get("/v1/videos/video_nope")
    await gateway.http.get("/some/odd/path")
    text = ""

    async def complete() -> bool:
        nonlocal text
        text = (await gateway.http.get("/metrics")).text
        return "turnout_event_lag_seconds_count 10.0" in text

    await wait_until(complete, "nine events more")
    for line in (
        'turnout_tasks{state="completed"} 1.0',
        f'turnout_tasks{{state="queued"}} {early + 1:.1f}',
        f'turnout_queue_length{{model="wan-tiny-t2v"}} {early + 1:.1f}',
        'turnout_queue_running{model="wan-tiny-t2v"} 0.0',
        "turnout_step_seconds_count 2.0",
        'turnout_gang_restarts_total{counted="true"} 1.0',
        f'turnout_http_requests_total{{method="POST",route="/v1/videos",status="200"}} {early + 2:.1f}',
        'turnout_http_requests_total{method="GET",route="/v1/videos/{video_id}",status="404"} 1.0',
        'turnout_http_requests_total{method="other",route="unmatched",status="404"} 1.0',
        "turnout_redis_up 1.0",
    ):
        assert f"{line}\n" in text, line
    assert "video_" not in text.replace("{video_id}", "")


async def test_metrics_answer_while_redis_is_away(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway.stores.backlog, "totals", away)
    answer = await gateway.http.get("/metrics")
    assert answer.status_code == 200
    assert "turnout_redis_up 0.0" in answer.text


async def test_a_queued_task_has_an_eta_once_one_like_it_has_ended(gateway: Gateway) -> None:
    await gateway.submit()
    await gateway.gang.finish(await gateway.gang.claim())
    video = await gateway.submit()

    async def known() -> bool:
        shown = (await gateway.http.get(f"/v1/videos/{video}")).json()
        return shown["eta_s"] is not None and shown["queue_position"] == 0

    await wait_until(known, "an eta")


def test_an_eta_grows_with_the_line_and_with_the_work() -> None:
    estimates = TimeEstimates()
    task = make_task()
    assert estimates.eta_s(task, 0, 1, 0.0) is None
    running = evolve(task, Claimed(100.0, 1, GangId("g")))
    finished = Finished(110.0, 1, Result("v", "t", "s", 1))
    estimates.observe(Recorded("1-0", "1-0", task.id, task.tenant, finished), evolve(running, finished))
    assert estimates.eta_s(task, 0, 1, 0.0) == pytest.approx(10)
    assert estimates.eta_s(task, 3, 1, 0.0) == pytest.approx(40)
    assert estimates.eta_s(task, 3, 3, 0.0) == pytest.approx(20), "three gangs share the line"
    assert estimates.eta_s(make_task(steps=8), 0, 1, 0.0) == pytest.approx(20)
    assert estimates.eta_s(running, None, 1, 104.0) == pytest.approx(6)
    assert estimates.eta_s(running, None, 1, 500.0) == 0
