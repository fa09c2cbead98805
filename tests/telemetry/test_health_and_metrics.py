"""What operators see."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from tests.conftest import wait_until
from tests.gateways import Gateway

from turnout.errors import Unavailable
from turnout.fleet.gang_rules import GangReport, RankReport
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.publication import Publication
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, ReplicaReport, Want
from turnout.fleet.route_rules import ModelRoutes
from turnout.fleet.worker_rules import Enrolment, OrderSheet, StoredHeartbeat
from turnout.store.connection import RedisConnection
from turnout.store.data_health import DataHealth
from turnout.store.valkey import redis_url, start_valkey
from turnout.tasks.task_rules import GangId, Interrupted, Stage


async def away(*_: object, **__: object) -> None:
    raise Unavailable("It did not answer.", retry_after_s=1.0)


FINE = dict.fromkeys(("redis", "blobs", "manager", "routes", "loops"), "ok")


@pytest.fixture
async def managed(gateway: Gateway) -> Gateway:
    """As if a manager were at work."""
    for right in ("manager", "fleet"):
        await gateway.stores.mutex.hold(right, "m1", 60)
    await gateway.stores.fleet.manager_state.publish("fleet", "m1", Publication(routes={"m": ModelRoutes()}))
    await wait_until(gateway.inside.chat.switchboard.knows_routes, "routes")
    return gateway


async def readiness(gateway: Gateway) -> tuple[int, dict[str, str]]:
    gateway.inside.telemetry.readiness._kept = None
    answer = await gateway.http.get("/ready")
    return answer.status_code, answer.json()["parts"]


async def test_health_and_readiness_need_no_key(managed: Gateway) -> None:
    gateway = managed
    del gateway.http.headers["authorization"]
    assert (await gateway.http.get("/health")).json()["status"] == "ok"
    ready = await gateway.http.get("/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "parts": FINE, "gangs": []})


async def test_gangs_on_a_cluster_are_told_without_where_they_are(gateway: Gateway) -> None:
    reports = gateway.stores.fleet.gangs
    ranks = (RankReport(0, "n1", "192.0.2.7", 11), RankReport(1, "n2", "192.0.2.8", 12))
    gang = GangReport(GangId("ray-wan-tiny-t2v-0-a"), "wan-tiny-t2v", 0, time.time(), time.time(), 1, ranks)
    await reports.put(gang)
    await reports.put(replace(gang, gang=GangId("ray-wan-tiny-t2v-1-b"), ranks=(RankReport(0), ranks[1])))
    silent = replace(gang, gang=GangId("ray-wan-tiny-t2v-2-c"), at=time.time() - 60)
    link = gateway.stores.link  # a report that is put says the server's time
    await link.client.hset(link.keys.gangs(), silent.gang, TypeAdapter(GangReport).dump_json(silent))
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


async def test_gangs_that_workers_run_are_told(gateway: Gateway) -> None:
    stores, worker = gateway.stores, WorkerId("w-1")
    models = await gateway.inside.catalog.all()
    chat = Model("chatty", EngineKind.LLAMACPP, "w.gguf")
    ordered = {"r1": models["wan-tiny-t2v"], "r2": models["wan-tiny-t2v"], "r3": chat}
    sheet = OrderSheet(
        3, tuple(ReplicaOrder(ReplicaId(i), model, (), Want.READY) for i, model in ordered.items())
    )
    await stores.mutex.hold("fleet", "m1", 60)
    await stores.fleet.manager_state.publish("fleet", "m1", Publication(orders={worker: sheet}))
    await stores.fleet.workers.enrol(Enrolment(worker, "w1", "http://192.0.2.9:1", "d" * 64))
    machine = Machine((), 1 << 30, 1 << 30, engines=frozenset(EngineKind))
    phases = {"r1": Phase.READY, "r2": Phase.STARTING, "r3": Phase.READY, "r4": Phase.READY}
    reports = tuple(ReplicaReport(ReplicaId(i), phase) for i, phase in phases.items())
    await stores.fleet.workers.heard(worker, StoredHeartbeat(machine, reports, 3))
    ready = await gateway.http.get("/ready")
    assert ready.json()["gangs"] == [
        {"model": "wan-tiny-t2v", "state": "formed", "ranks": 2, "nodes": 1},
        {"model": "wan-tiny-t2v", "state": "starting", "ranks": 2, "nodes": 1},
    ]
    figures = (await gateway.http.get("/metrics")).text
    assert 'turnout_gangs{model="wan-tiny-t2v",state="formed"} 1.0' in figures
    assert 'turnout_gangs{model="wan-tiny-t2v",state="starting"} 1.0' in figures
    assert 'turnout_gang_nodes{model="wan-tiny-t2v"} 1.0' in figures
    await stores.fleet.workers.heard(worker, StoredHeartbeat(machine, (), 3))
    gateway.inside.workers.gangs._kept = None
    assert (await gateway.http.get("/ready")).json()["gangs"] == []


async def test_a_store_that_takes_no_objects_is_told(
    managed: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed.blobs, "put", away)
    assert await readiness(managed) == (503, {**FINE, "blobs": "it takes no objects"})
    assert (await managed.http.get("/health")).status_code == 200


@pytest.mark.parametrize("right", ["manager", "fleet"])
async def test_without_a_manager_it_is_not_ready(managed: Gateway, right: str) -> None:
    await managed.stores.mutex.drop(right, "m1")
    status, parts = await readiness(managed)
    assert status == 503
    assert parts["manager"].startswith("no manager ")


async def test_a_loop_that_fails_is_told_at_once_here_and_in_the_manager(managed: Gateway) -> None:
    await managed.stores.data.report_loops({"fleet": "ok", "webhooks": "failed (OSError), 3 in a row"})
    status, parts = await readiness(managed)
    assert (status, parts["manager"]) == (503, "background loops fail: webhooks")
    await managed.stores.data.report_loops({"fleet": "ok"})
    assert (await readiness(managed))[0] == 200
    next(task for task in asyncio.all_tasks() if task.get_name() == "chat usage").cancel()
    await wait_until(lambda: managed.inside.background.restarts()["chat usage"] == 1, "the loop to die")
    answer = await managed.http.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["parts"]["loop chat usage"].startswith("failed (CancelledError)")
    assert 'turnout_loop_restarts_total{loop="chat usage"} 1.0' in (await managed.http.get("/metrics")).text


async def test_many_who_ask_cost_redis_one_write_a_second(managed: Gateway) -> None:
    managed.inside.telemetry.readiness._kept = None
    managed.inside.telemetry.readiness._now = lambda: 0.0  # a second that lasts as long as the requests
    real, asked = managed.stores.data.prove_write, 0

    async def counted() -> None:
        nonlocal asked
        asked += 1
        await real()

    managed.inside.telemetry.readiness._data.prove_write = counted  # type: ignore[method-assign]
    answers = await asyncio.gather(*(managed.http.get("/ready") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert asked == 1


async def test_a_server_out_of_memory_is_told_by_a_write(tmp_path: Path) -> None:
    child = await start_valkey(tmp_path / "r", "test", tmp_path / "log")
    link = RedisConnection(redis_url(tmp_path / "r", "test"), "turnout")
    try:
        health = DataHealth(link)
        await health.prove_write()
        await link.client.config_set("maxmemory", 1)
        with pytest.raises(Unavailable, match="out of memory"):
            await health.prove_write()
        await link.client.config_set("maxmemory", 0)
        await health.prove_write()
    finally:
        await link.close()
        await child.stop(5)


async def test_after_a_flush_the_service_says_that_the_data_is_gone(managed: Gateway) -> None:
    assert (await readiness(managed))[0] == 200
    link = managed.stores.link
    names = [name async for name in link.client.scan_iter(f"{link.keys.prefix}:*")]
    await link.client.delete(*names)
    managed.inside.keys._kept.clear()  # what was known of keys lapses in a moment
    refused = await managed.http.get("/v1/videos")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "data_lost")
    assert "turnout restore" in refused.json()["error"]["message"]
    status, parts = await readiness(managed)
    assert status == 503
    assert parts["redis"].startswith("The data is gone")
    await link.client.set(link.keys.genesis(), "another")
    assert (await readiness(managed))[1]["redis"].startswith("The data is gone")


async def submit_until_heard(gateway: Gateway) -> int:
    """How many tasks were submitted until the gateway, which tails events from its start on, heard of one."""
    for count in range(1, 100):
        await gateway.submit()
        for _ in range(20):
            if "turnout_event_lag_seconds_count 0.0" not in (await gateway.http.get("/metrics")).text:
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
    lines = (
        'turnout_tasks_ended_total{state="completed"} 1.0',
        f'turnout_tasks{{state="queued"}} {early + 1:.1f}',
        f'turnout_queue_length{{model="wan-tiny-t2v"}} {early + 1:.1f}',
        'turnout_queue_running{model="wan-tiny-t2v"} 0.0',
        'turnout_video_stage_seconds_count{model="wan-tiny-t2v",stage="step"} 2.0',
        'turnout_video_seconds_count{model="wan-tiny-t2v"} 1.0',
        'turnout_gang_restarts_total{model="wan-tiny-t2v",counted="true"} 1.0',
        f'turnout_http_requests_total{{method="POST",route="/v1/videos",status="200"}} {early + 2:.1f}',
        'turnout_http_requests_total{method="GET",route="/v1/videos/{video_id}",status="404"} 1.0',
        'turnout_http_requests_total{method="other",route="unmatched",status="404"} 1.0',
        "turnout_redis_up 1.0",
    )
    text, missing = "", list[str]()

    async def complete() -> bool:
        nonlocal text
        text = (await gateway.http.get("/metrics")).text
        missing[:] = [line for line in lines if f"{line}\n" not in text]
        return not missing

    try:
        await wait_until(complete, "all that happened to be counted")
    except BaseException:
        print("\n".join(missing))
        raise
    assert "video_0" not in text


async def test_metrics_answer_while_redis_is_away(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    for looks_at, figure in (
        (gateway.stores.data, "load"),
        (gateway.stores.backlog, "totals"),
        (gateway.stores.fleet.status, "figures"),
    ):
        monkeypatch.setattr(looks_at, figure, away)
    answer = await gateway.http.get("/metrics")
    assert answer.status_code == 200
    assert "turnout_redis_up 0.0" in answer.text
    assert 'turnout_look_age_seconds{of="events"} 0.0' in answer.text, "each look stands for itself"
