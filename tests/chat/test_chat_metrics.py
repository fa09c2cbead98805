"""What /metrics tells of chat and of the fleet."""

import asyncio
from pathlib import Path

from tests.chat.test_chat_limits import ASK, PATH, answer
from tests.conftest import Stores, wait_until
from tests.gateways import chatting
from tests.relay.kit import Call
from tests.tenants.test_usage_routes import streamed

from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.publication import Publication
from turnout.fleet.worker_rules import Enrolment, StoredHeartbeat
from turnout.telemetry.histogram import Histogram


async def test_requests_times_tokens_and_refusals_are_told(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:

        async def either(call: Call) -> None:
            await (streamed(call) if b'"stream"' in call.request.body else call.json(answer(10, 5)))

        await chat.replica(either)
        for body in (ASK, {**ASK, "stream": True}, {**ASK, "model": "nope"}):
            await http.post(PATH, json=body)
        text = (await http.get("/metrics")).text
    for line in (
        'turnout_chat_requests_total{model="m",outcome="200"} 2.0',
        'turnout_chat_tokens_total{model="m",kind="prompt"} 17.0',
        'turnout_chat_tokens_total{model="m",kind="completion"} 8.0',
        'turnout_chat_first_byte_seconds_count{model="m",start="warm"} 2.0',
        'turnout_chat_seconds_bucket{model="m",le="+Inf"} 2.0',
        'turnout_chat_inter_token_seconds_count{model="m"} 1.0',
        'turnout_chat_refused_total{code="model_not_found"} 1.0',
        'turnout_chat_waiting{model="m"} 0.0',
        'turnout_chat_running{model="m"} 0.0',
    ):
        assert f"{line}\n" in text, (line, text)
    assert "nope" not in text


async def test_replicas_wakes_evictions_and_heartbeats_are_told(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat:
        worker = WorkerId("w-1")
        await stores.fleet.workers.enrol(Enrolment(worker, "one", "http://w", "digest"))
        await stores.fleet.workers.heard(worker, StoredHeartbeat(Machine((), 1, 1)))
        for _ in range(2):
            told = Publication(
                replica_counts={"ready:m": 2, "sleeping:a:b": 1},
                decision_counts={"start:load:m": 1, "wake:request:m": 2, "evict::a:b": 1, "fail::a:b": 3},
            )
            assert await stores.fleet.manager_state.publish("fleet", "test", told)
        text = (await chat.gateway.http.get("/metrics")).text
    for line in (
        'turnout_replicas{model="m",state="ready"} 2.0',
        'turnout_replicas{model="a:b",state="sleeping"} 1.0',
        'turnout_cold_starts_total{model="m",kind="start",cause="load"} 2.0',
        'turnout_cold_starts_total{model="m",kind="wake",cause="request"} 4.0',
        'turnout_evictions_total{model="a:b"} 2.0',
        'turnout_model_failures_total{model="a:b"} 6.0',
    ):
        assert f"{line}\n" in text, (line, text)
    (age,) = [li for li in text.splitlines() if li.startswith("turnout_worker_heartbeat_age_seconds{")]
    assert age.startswith('turnout_worker_heartbeat_age_seconds{worker="w-1"} ')
    assert 0 <= float(age.split()[-1]) < 60


def test_a_histogram_counts_what_lies_below_each_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.add(value)
    assert histogram.buckets() == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]
    assert histogram.total == 7.65


async def test_a_chat_that_woke_its_model_is_told_apart(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path) as chat, chat.client() as http:
        await chat.route()  # of a model without replicas
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(http.post(PATH, json=ASK))
            await wait_until(
                lambda: any(seen.waiting for seen in chat.gateway.inside.chat.switchboard.demand().values()),
                "the request to wait for a replica",
            )
            await chat.replica(lambda call: call.json(answer(10, 5)))
            await asking
        text = (await http.get("/metrics")).text
    assert 'turnout_chat_first_byte_seconds_count{model="m",start="cold"} 1.0' in text
    assert 'turnout_chat_first_byte_seconds_count{model="m",start="warm"} 0.0' in text
