"""Requests at a worker that is not heard any more, through a real relay."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.conftest import wait_until
from tests.relay.kit import Call, Counted, Stand, echo, last_event, standing

from turnout.chat.silent_workers import SilentWorkers
from turnout.fleet.machine_rules import WorkerId
from turnout.relay import RelayFailure, RelaySettings, UpstreamCall

HUNG, SOUND = WorkerId("hung"), WorkerId("sound")
EVENT = b'data: {"n":1}\n\n'


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    async with standing(RelaySettings()) as stand:
        yield stand


async def hang(call: Call) -> None:
    await call.wait_hung_up()


async def stream_and_hang(call: Call) -> None:
    await call.begin_events()
    await call.chunk(EVENT)
    await call.wait_hung_up()


def watch(stand: Stand, suspects: set[WorkerId], heard: set[WorkerId], quiet_s: float = 0.2) -> SilentWorkers:
    """The first replica is on the worker that hangs."""

    def worker_of(call: UpstreamCall | None) -> WorkerId | None:
        if not isinstance(call, Counted):
            return None
        return HUNG if call.target == stand.admission.targets[0] else SOUND

    return SilentWorkers(stand.relay, lambda: suspects, lambda: heard, worker_of, quiet_s)


async def looked_until(workers: SilentWorkers, holds: Callable[[], bool], what: str) -> None:
    def look_and_see() -> bool:
        workers.look()
        return holds()

    await wait_until(look_and_see, what)


async def test_a_request_leaves_a_worker_that_is_silent_for_another_replica(stand: Stand) -> None:
    await stand.replica(hang)
    await stand.replica(echo)
    client = await stand.client()
    asking = asyncio.ensure_future(client.ask(b'{"x":1}'))
    workers = watch(stand, {HUNG}, {SOUND})
    await looked_until(workers, asking.done, "the other replica to answer")
    assert (await asking).body == b'{"x":1}'
    assert stand.admission.failures == [RelayFailure.LOST, None]


async def test_a_worker_whose_routes_are_gone_is_as_silent_as_it_was(stand: Stand) -> None:
    await stand.replica(hang)
    await stand.replica(echo)
    suspects = {HUNG}
    workers = watch(stand, suspects, {SOUND}, quiet_s=1.0)
    asking = asyncio.ensure_future((await stand.client()).ask())
    await wait_until(lambda: bool(stand.admission.calls), "the request to be sent")
    workers.look()
    suspects.clear()
    await looked_until(workers, asking.done, "the other replica to answer")
    assert (await asking).status == 200


async def test_an_answer_that_was_begun_ends_with_an_error(stand: Stand) -> None:
    await stand.replica(stream_and_hang)
    client = await stand.client()
    client.post()
    asking = asyncio.ensure_future(client.answer())
    await looked_until(watch(stand, {HUNG}, set()), asking.done, "the stream to end")
    assert last_event((await asking).body)["error"]["code"] == "replica_lost"


async def test_who_is_heard_again_keeps_its_requests(stand: Stand) -> None:
    release = asyncio.Event()

    async def slow(call: Call) -> None:
        await release.wait()
        await call.json(b"{}")

    await stand.replica(slow)
    suspects, heard = {HUNG}, set[WorkerId]()
    workers = watch(stand, suspects, heard, quiet_s=0.5)
    asking = asyncio.ensure_future((await stand.client()).ask())
    await wait_until(lambda: bool(stand.admission.calls), "the request to be sent")
    workers.look()
    suspects.clear()
    heard.add(HUNG)
    (request,) = stand.relay.requests
    await wait_until(lambda: request.quiet_s > 0.5, "it to be quiet for long")
    workers.look()
    release.set()
    assert (await asking).status == 200
    assert stand.admission.failures == [None]


async def test_a_stream_that_flows_is_left_alone(stand: Stand) -> None:
    async def flow(call: Call) -> None:
        await call.begin_events()
        for _ in range(20):
            await call.chunk(EVENT)
            await asyncio.sleep(0.1)
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()

    await stand.replica(flow)
    client = await stand.client()
    client.post(b'{"stream":true}')
    asking = asyncio.ensure_future(client.answer())
    workers = watch(stand, {HUNG}, set(), quiet_s=1.5)
    await looked_until(workers, asking.done, "the stream to end")
    assert (await asking).body.endswith(b"[DONE]\n\n")
