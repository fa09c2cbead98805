"""Who may send a large body is asked when the head is there; and what a request is called goes with it."""

import asyncio
import json

import pytest
from tests.conftest import wait_until
from tests.relay.kit import CHAT, PATIENCE_S, Stand, echo

from turnout.errors import Unauthorized

BIG = 1_000_000
NOBODY = Unauthorized("The API key is not valid.", code="invalid_api_key")


def head(length: int | None, extra: bytes = b"") -> bytes:
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return b"POST %b HTTP/1.1\r\nHost: relay\r\n%b%b\r\n\r\n" % (CHAT, extra, framing)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after a look-up"])
@pytest.mark.parametrize("length", [BIG, None], ids=["long", "chunked"])
async def test_a_stranger_with_a_large_body_is_refused_before_it_is_read(
    stand: Stand, late: bool, length: int | None
) -> None:
    async def look_up() -> None:
        await asyncio.sleep(0.01)
        raise NOBODY

    def greet(authorization: bytes | None) -> object:
        if late:
            return look_up()
        raise NOBODY

    stand.admission.authenticate_with = greet  # type: ignore[assignment]
    client = await stand.client()
    client.send(head(length))
    answer = await client.answer()
    assert answer.status == 401
    assert json.loads(answer.body)["error"]["code"] == "invalid_api_key"
    assert answer.headers[b"connection"] == b"close"
    assert answer.headers[b"www-authenticate"] == b"Bearer"
    client.send(b"x" * 10_000 + b"\r\n\r\n" + head(2) + b"{}")  # a smuggled request is not heard
    assert await client.closed()
    assert not stand.admission.asks


async def test_expected_bodies_are_called_for_only_when_the_caller_is_known(stand: Stand) -> None:
    await stand.replica(echo)
    known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stand.admission.authenticate_with = lambda authorization: known
    client = await stand.client()
    client.send(head(2, b"Expect: 100-continue\r\n"))
    await wait_until(lambda: stand.admission.authenticated == 1, "the head to arrive")
    known.set_result(None)
    assert (await client.head())[0] == 100
    client.send(b"{}")
    assert (await client.answer()).body == b"{}"


async def test_a_known_caller_goes_on_after_the_look_up(stand: Stand) -> None:
    await stand.replica(echo)

    async def look_up() -> None:
        await asyncio.sleep(0.01)

    stand.admission.authenticate_with = lambda authorization: look_up()
    client = await stand.client()
    for _ in range(2):
        assert len((await client.ask(b"x" * BIG)).body) == BIG
    assert stand.admission.authenticated == 2


async def test_small_bodies_are_not_held_up(stand: Stand) -> None:
    await stand.replica(echo)
    client = await stand.client()
    await client.ask(b"x" * 1000)
    assert stand.admission.authenticated == 0


async def test_a_client_that_hangs_up_during_the_look_up_ends_it(stand: Stand) -> None:
    ended = asyncio.Event()

    async def look_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    stand.admission.authenticate_with = lambda authorization: look_up()
    client = await stand.client()
    client.send(head(BIG))
    await wait_until(lambda: stand.admission.authenticated == 1, "the head to arrive")
    await asyncio.sleep(0)
    client.hang_up()
    # While reading is paused a hang-up is not seen, so the look-up has its own deadline; closing the relay's side
    # of the connection is what ends it here.
    next(iter(stand.relay.connections)).reset()
    await asyncio.wait_for(ended.wait(), PATIENCE_S)


async def test_a_request_id_is_kept_only_behind_our_own_gateways(make_stand) -> None:
    for trusts in (True, False):
        stand = await make_stand(trusts_request_ids=trusts)
        replica = await stand.replica(echo)
        client = await stand.client()
        for given in (b"req-abc.1", b"req-abc.1", b"two words", b"x" * 65):
            answer = await client.ask(extra=b"X-Request-Id: %b\r\n" % given)
            told = answer.headers[b"x-request-id"]
            assert (told == given) == (trusts and given == b"req-abc.1")
            assert replica.requests[-1].headers[b"x-request-id"] == told
