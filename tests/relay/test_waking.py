"""A stream that waits long for its answer: it is kept open, and whatever happens then is told inside of it."""

import asyncio

import pytest
from tests.relay.kit import DONE, Call, Stand, echo, last_event

from turnout.errors import Unavailable
from turnout.relay import RelayFailure, RelayRequest, UpstreamCall

EVENT = b'data: {"n":1}\n\n'


async def wake_slowly(stand: Stand, wake: asyncio.Event) -> None:
    async def admit(ask: RelayRequest) -> UpstreamCall:
        await wake.wait()
        return stand.admission.next_call(ask)

    stand.admission.admit_with = admit


async def test_a_stream_is_kept_open_while_the_model_wakes(make_stand) -> None:
    stand: Stand = await make_stand(comment_after_s=0.05, comment_every_s=0.05)

    async def stream(call: Call) -> None:
        await call.begin_events()
        await call.chunk(EVENT + DONE)
        await call.end()

    await stand.replica(stream)
    wake = asyncio.Event()
    await wake_slowly(stand, wake)
    client = await stand.client()
    client.post(b'{"stream": true}')
    status, headers = await client.head()
    assert (status, headers[b"content-type"]) == (200, b"text/event-stream; charset=utf-8")
    assert await client.chunk() == await client.chunk() == b": waking\n\n"
    wake.set()
    rest = b""
    while data := await client.chunk():
        rest += data
    assert rest.replace(b": waking\n\n", b"").replace(b": waiting\n\n", b"") == EVENT + DONE
    assert stand.admission.calls[0].first_bytes == 1
    assert (await client.ask(b'{"stream": true}')).status == 200


async def test_one_that_does_not_stream_waits_in_silence(make_stand) -> None:
    stand: Stand = await make_stand(comment_after_s=0.02, comment_every_s=0.02)
    await stand.replica(echo)
    wake = asyncio.Event()
    await wake_slowly(stand, wake)
    client = await stand.client()
    body = b'{"metadata": {"stream": true}}'
    client.post(body)
    asyncio.get_running_loop().call_later(0.2, wake.set)
    answer = await client.answer()
    assert (answer.headers[b"content-type"], answer.body) == (b"application/json", body)


async def test_a_wake_that_fails_is_told_in_the_stream(make_stand) -> None:
    stand: Stand = await make_stand(comment_after_s=0.02, comment_every_s=0.02)

    async def admit(ask: RelayRequest) -> UpstreamCall:
        await asyncio.sleep(0.1)
        raise Unavailable("The model did not wake: out of memory.", code="model_failed")

    stand.admission.admit_with = admit
    answer = await (await stand.client()).ask(b'{"stream":true}')
    assert answer.status == 200
    assert last_event(answer.body)["error"]["code"] == "model_failed"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (b"400 Bad Request", b'{"error": {"message": "too\\nlong"}}', "too\nlong"),
        (b"422 Unprocessable", b"plain words", "plain words"),
        (b"500 Oops", b"", "The engine answered with status 500."),
        (b"200 OK", b'{"choices":[]}', "The model's server did not stream."),
    ],
)
async def test_an_engines_error_after_a_slow_wake_becomes_an_event(
    make_stand, status: bytes, body: bytes, message: str
) -> None:
    stand: Stand = await make_stand(comment_after_s=0.02, comment_every_s=0.02)

    async def refuse(call: Call) -> None:
        await asyncio.sleep(0.1)
        await call.json(body, status)

    await stand.replica(refuse)
    answer = await (await stand.client()).ask(b'{"stream":true}')
    assert answer.body.startswith(b": waiting\n\n")
    assert last_event(answer.body)["error"]["message"] == message
    assert stand.admission.settled


async def test_a_replica_can_still_be_replaced_after_comments(make_stand) -> None:
    stand: Stand = await make_stand(comment_after_s=0.02, comment_every_s=0.02)

    async def slow_death(call: Call) -> None:
        await asyncio.sleep(0.1)
        call.die()

    async def stream(call: Call) -> None:
        await call.begin_events()
        await call.chunk(EVENT + DONE)
        await call.end()

    await stand.replica(slow_death)
    await stand.replica(stream)
    answer = await (await stand.client()).ask(b'{"stream":true}')
    assert answer.body.replace(b": waiting\n\n", b"") == EVENT + DONE
    assert stand.admission.failures == [RelayFailure.LOST, None]
