"""Requests that the relay's user answers itself stand in line with those of replicas and of the app."""

import asyncio

import pytest
from tests.conftest import wait_until
from tests.relay.kit import Broken, Stand, echo, post

from turnout.relay import RelayAnswer, RelayRequest

HERE = b"/v1/things"


async def answering(ask: RelayRequest) -> RelayAnswer:
    return RelayAnswer(201, b"x-of: here\r\n", b"%b %b" % (ask.path, ask.body))


@pytest.fixture
def here(stand: Stand) -> Stand:
    stand.relay.answer(HERE.decode(), answering)
    return stand


async def test_it_is_answered_without_a_replica(here: Stand) -> None:
    client = await here.client()
    for number in range(40):  # the head is cached from some time on
        answer = await client.ask(b"n%d" % number, HERE)
        assert (answer.status, answer.body) == (201, b"%b n%d" % (HERE, number))
        assert answer.headers[b"x-of"] == b"here"
        assert answer.headers[b"content-type"] == b"application/json"
    assert here.admission.asks == []
    assert here.relay.body_bytes == 0 and not here.tasks


async def test_what_is_no_json_goes_to_the_app(here: Stand) -> None:
    client = await here.client()
    client.send(
        b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        b"Content-Length: 2\r\n\r\nab" % HERE
    )
    assert (await client.answer()).body == b"app %b ab" % HERE
    client.send(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % HERE)
    assert (await client.answer()).body == b"app %b " % HERE
    client.send(b"POST %b HTTP/1.0\r\nContent-Length: 2\r\n\r\nab" % HERE)
    assert (await client.answer()).body == b"app %b ab" % HERE


async def test_pipelined_requests_are_answered_in_their_order(here: Stand) -> None:
    await here.replica(echo)
    client = await here.client()
    get = b"GET /app HTTP/1.1\r\nHost: x\r\n\r\n"
    client.send(post(b"1", HERE) + post(b"2") + get + post(b"3", HERE) + get + post(b"4", HERE))
    bodies = [(await client.answer()).body for _ in range(6)]
    assert bodies[0] == b"%b 1" % HERE and bodies[3] == b"%b 3" % HERE and bodies[5] == b"%b 4" % HERE
    assert bodies[2] == bodies[4] == b"app /app "


async def test_a_closed_relay_cuts_what_has_no_answer_yet(stand: Stand) -> None:
    begun = asyncio.Event()

    async def never(ask: RelayRequest) -> RelayAnswer:
        begun.set()
        await asyncio.sleep(60)
        raise AssertionError

    stand.relay.answer(HERE.decode(), never)
    client = await stand.client()
    client.post(b"{}", HERE)
    await begun.wait()
    assert len(stand.tasks) == 1  # the server waits for it before it closes the relay
    stand.relay.close()
    with pytest.raises(Broken):
        await client.answer()
    for task in stand.tasks:
        task.cancel()
    await wait_until(lambda: stand.relay.body_bytes == 0 and not stand.tasks, "everything to be given back")


async def test_an_answerer_that_breaks_is_seen_as_a_broken_connection(stand: Stand) -> None:
    async def broken(ask: RelayRequest) -> RelayAnswer:
        await asyncio.sleep(0.1)
        raise ZeroDivisionError

    stand.relay.answer(HERE.decode(), broken)
    client = await stand.client()
    client.post(b"{}", HERE)
    [task] = await tasks_of(stand)
    with pytest.raises(ZeroDivisionError):
        await task
    with pytest.raises(Broken):
        await client.answer()
    assert stand.relay.body_bytes == 0


async def tasks_of(stand: Stand) -> list[asyncio.Task[None]]:
    await wait_until(lambda: bool(stand.tasks), "the request")
    return list(stand.tasks)


async def test_a_server_that_stops_lets_the_answer_go_out_and_closes(stand: Stand) -> None:
    go_on = asyncio.Event()

    async def slow(ask: RelayRequest) -> RelayAnswer:
        await go_on.wait()
        return await answering(ask)

    stand.relay.answer(HERE.decode(), slow)
    client = await stand.client()
    client.post(b"{}", HERE)
    await wait_until(lambda: len(stand.tasks) == 1, "the request")
    for connection in stand.relay.connections:
        connection.shutdown()  # type: ignore[attr-defined]
    go_on.set()
    answer = await client.answer()
    assert answer.status == 201 and answer.headers[b"connection"] == b"close"
    assert await client.reader.read() == b""
