"""What is refused, and how: nothing that two parsers could read in two ways ever reaches a replica."""

import asyncio
import json

import pytest
from tests.conftest import wait_until
from tests.relay.kit import CHAT, Answer, Call, Stand, echo, post

from turnout.errors import Conflict, Forbidden, InvalidRequest, Limited, NotFound, Unauthorized, Unavailable
from turnout.relay import RelayRequest, UpstreamCall

LINE = b"POST %b HTTP/1.1\r\nHost: x\r\n" % CHAT
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"
INSIDE = post(b"{}", b"/smuggled")

SMUGGLING: dict[str, tuple[int, bytes]] = {
    "both lengths": (400, LINE + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "both lengths turned": (400, LINE + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    "two lengths": (400, LINE + b"Content-Length: 2\r\nContent-Length: 7\r\n\r\n{}"),
    "the same length twice": (400, LINE + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
    "a list of lengths": (400, LINE + b"Content-Length: 2, 2\r\n\r\n{}"),
    "a signed length": (400, LINE + b"Content-Length: +2\r\n\r\n{}"),
    "a negative length": (400, LINE + b"Content-Length: -2\r\n\r\n{}"),
    "a hexadecimal length": (400, LINE + b"Content-Length: 0x2\r\n\r\n{}"),
    "an empty length": (400, LINE + b"Content-Length: \r\n\r\n{}"),
    "an endless length": (400, LINE + b"Content-Length: 99999999999999999999999\r\n\r\n{}"),
    "a space before the colon": (400, LINE + b"Content-Length : 2\r\n\r\n{}"),
    "a folded header": (400, LINE + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}"),
    "a folded first header": (400, b"POST %b HTTP/1.1\r\n Host: x\r\n\r\n" % CHAT),
    "a bare LF": (400, LINE + b"X: a\nContent-Length: 2\r\n\r\n{}"),
    "a bare CR": (400, LINE + b"X: a\rContent-Length: 2\r\n\r\n{}"),
    "a NUL in a value": (400, LINE + b"X: a\0b\r\nContent-Length: 2\r\n\r\n{}"),
    "no colon": (400, LINE + b"Foo\r\nContent-Length: 2\r\n\r\n{}"),
    "another encoding": (501, LINE + b"Transfer-Encoding: gzip\r\n\r\n"),
    "two encodings": (501, LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "chunked is not last": (400, LINE + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    "chunked twice": (
        400,
        LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "nearly chunked": (501, LINE + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "a hidden encoding": (400, LINE + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "chunks in HTTP/1.0": (400, b"POST %b HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % CHAT),
    "a bad chunk size": (400, CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n"),
    "a prefixed chunk size": (400, CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n"),
    "a negative chunk size": (400, CHUNKED + b"-1\r\nabc\r\n0\r\n\r\n"),
    "an endless chunk size": (400, CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    "a chunk that ends with LF": (400, CHUNKED + b"3\nabc\r\n0\r\n\r\n"),
    "a chunk longer than said": (400, CHUNKED + b"3\r\nabcX0\r\n\r\n"),
    "a LF in an extension": (400, CHUNKED + b"3;a\nb\r\nabc\r\n0\r\n\r\n"),
    "no Host": (400, b"POST %b HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}" % CHAT),
    "two Hosts": (400, LINE + b"Host: y\r\nContent-Length: 2\r\n\r\n{}"),
    "two keys": (400, LINE + b"Authorization: a\r\nAuthorization: b\r\nContent-Length: 2\r\n\r\n{}"),
    "an upgrade": (400, LINE + b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}"),
    "an upgrade without Connection": (400, LINE + b"Upgrade: h2c\r\nContent-Length: 2\r\n\r\n{}"),
    "another expectation": (417, LINE + b"Expect: 200-ok\r\nContent-Length: 2\r\n\r\n{}"),
    "HTTP/0.9": (505, b"POST %b\r\n\r\n" % CHAT),
    "HTTP/2.0": (505, b"POST %b HTTP/2.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" % CHAT),
    "HTTP/1.2": (400, b"POST %b HTTP/1.2\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" % CHAT),
    "not HTTP": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
}


def problem(answer: Answer) -> dict[str, object]:
    said = json.loads(answer.body)["error"]
    assert set(said) == {"message", "type", "param", "code"}
    return said


@pytest.mark.parametrize("name", SMUGGLING)
async def test_ambiguous_requests_are_refused_and_the_connection_closed(stand: Stand, name: str) -> None:
    status, raw = SMUGGLING[name]
    replica = await stand.replica(echo)
    client = await stand.client()
    client.send(raw + INSIDE)
    answer = await client.answer()
    assert (answer.status, problem(answer)["code"]) == (status, "bad_framing")
    assert answer.headers[b"connection"] == b"close"
    assert await client.closed()
    assert replica.requests == [] and stand.admission.calls == []


@pytest.mark.parametrize("name", ["both lengths", "a bad chunk size", "two Hosts", "not HTTP"])
async def test_a_refusal_waits_for_the_answers_before_it(stand: Stand, name: str) -> None:
    status, raw = SMUGGLING[name]
    release = asyncio.Event()

    async def slow(call: Call) -> None:
        await release.wait()
        await echo(call)

    replica = await stand.replica(slow)
    client = await stand.client()
    client.send(post(b'{"n":1}') + post(b'{"n":2}') + raw + INSIDE)
    await wait_until(lambda: len(replica.requests) == 1, "the first request")
    release.set()
    assert (await client.answer()).body == b'{"n":1}'
    assert (await client.answer()).body == b'{"n":2}'
    assert (await client.answer()).status == status
    assert await client.closed()
    assert len(replica.requests) == 2


async def test_a_known_head_is_no_way_around_the_rules(stand: Stand) -> None:
    """After a head was learnt, one that differs anywhere but in its length is parsed anew."""
    replica = await stand.replica(echo)
    for status, raw in (SMUGGLING[name] for name in ("two lengths", "a signed length", "both lengths")):
        client = await stand.client()
        assert (await client.ask(b"{}")).status == 200
        assert (await client.ask(b'{"longer":1}')).status == 200
        client.send(raw)
        assert (await client.answer()).status == status
    for digits in (b"+2", b"0x2", b" 2 2", b"2,2", b"", b"\xb2", b"2_0", b"99999999999"):
        client = await stand.client()
        assert (await client.ask(b"{}")).status == 200
        client.send(post(b"{}").replace(b"Content-Length: 2", b"Content-Length: " + digits))
        assert (await client.answer()).status in (400, 413)
    assert {request.body for request in replica.requests} <= {b"{}", b'{"longer":1}'}


async def test_a_body_over_the_limit_is_refused_early(make_stand) -> None:
    stand: Stand = await make_stand(max_body_bytes=1000)
    await stand.replica(echo)
    client = await stand.client()
    client.send(LINE + b"Content-Length: 1001\r\n\r\n")
    answer = await client.answer()
    assert (answer.status, problem(answer)["code"]) == (413, "body_too_large")
    client = await stand.client()
    client.send(CHUNKED + (b"1f4\r\n" + b"x" * 500 + b"\r\n") * 3)
    assert (await client.answer()).status == 413
    client = await stand.client()
    assert (await client.ask(b"x" * 1000)).status == 200
    assert (await client.ask(b"x" * 1001)).status == 413  # with a head that is known by now
    assert len(stand.admission.calls) == 1


async def test_a_refusal_reaches_a_client_that_goes_on_sending(make_stand) -> None:
    stand: Stand = await make_stand(max_body_bytes=1000)
    client = await stand.client()
    client.send(LINE + b"Content-Length: 50000000\r\n\r\n")
    for _ in range(50):
        client.send(b"x" * 1_000_000)
    assert (await client.answer()).status == 413


async def test_an_endless_head_is_refused(make_stand) -> None:
    stand: Stand = await make_stand(max_head_bytes=4096, max_headers=20)
    client = await stand.client()
    client.send(LINE)
    for _ in range(100):
        client.send(b"X-Filler: %b\r\n" % (b"y" * 200))
        await asyncio.sleep(0)
    assert (await client.answer()).status == 431
    client = await stand.client()
    client.send(LINE + b"X-Filler: %b\r\nContent-Length: 2\r\n\r\n{}" % (b"y" * 10_000))
    assert (await client.answer()).status == 431
    client = await stand.client()
    client.send(LINE + b"X: y\r\n" * 30 + b"Content-Length: 2\r\n\r\n{}")
    assert (await client.answer()).status == 431


async def test_endless_trailers_are_refused(make_stand) -> None:
    stand: Stand = await make_stand(max_body_bytes=1000)
    client = await stand.client()
    client.send(CHUNKED + b"0\r\n")
    for _ in range(150):
        client.send((b"X-Filler: %b\r\n" % (b"y" * 100)) * 100)
        await asyncio.sleep(0)
    assert (await client.answer()).status == 413


async def test_a_request_that_stalls_is_given_up(make_stand) -> None:
    stand: Stand = await make_stand(head_s=0.1, body_stall_s=0.1, keep_alive_s=0.3)
    await stand.replica(echo)
    client = await stand.client()
    client.send(LINE)
    assert (await client.answer()).status == 408
    client = await stand.client()
    client.send(LINE + b"Content-Length: 5\r\n\r\n{")
    assert (await client.answer()).status == 408
    client = await stand.client()
    assert (await client.ask()).status == 200
    assert await client.closed()
    assert stand.admission.settled


ERRORS = [
    (Unauthorized("No.", code="invalid_api_key"), 401, "invalid_api_key", {b"www-authenticate": b"Bearer"}),
    (Forbidden("No."), 403, None, {}),
    (NotFound("No model x.", "model", "model_not_found"), 404, "model_not_found", {}),
    (InvalidRequest("Bad.", "model"), 400, None, {}),
    (Conflict("Twice."), 409, None, {b"x-should-retry": b"false"}),
    (Limited("Slow down.", code="rate", retry_after_s=7.2), 429, "rate", {b"retry-after": b"8"}),
    (Unavailable("No room.", code="no_capacity"), 503, "no_capacity", {b"retry-after": b"2"}),
    (Unavailable("redis://inside is down"), 503, "unavailable", {b"retry-after": b"2"}),
    (RuntimeError("secret"), 500, "internal_error", {}),
]


@pytest.mark.parametrize("late", [False, True])
async def test_errors_of_the_desk_become_answers(stand: Stand, late: bool) -> None:
    client = await stand.client()
    for err, status, code, headers in ERRORS:

        def refuse(ask: RelayRequest, err: Exception = err) -> UpstreamCall:
            raise err

        async def refuse_late(ask: RelayRequest, err: Exception = err) -> UpstreamCall:
            await asyncio.sleep(0)
            raise err

        stand.admission.admit_with = refuse_late if late else refuse
        answer = await client.ask()
        assert (answer.status, problem(answer)["code"]) == (status, code)
        assert headers.items() <= answer.headers.items()
        assert b"secret" not in answer.body and b"inside" not in answer.body
        assert b"x-request-id" in answer.headers


async def test_many_refusals_in_one_segment_are_all_answered(stand: Stand) -> None:
    """Each is answered before `start` returns; that must not end in deep recursion."""

    def refuse(ask: RelayRequest) -> UpstreamCall:
        raise Unauthorized("No.")

    stand.admission.admit_with = refuse
    client = await stand.client()
    client.send(post(b"{}") * 2000)
    for _ in range(2000):
        assert (await client.answer()).status == 401


async def test_bad_bodies_for_the_app_are_refused_in_our_shape(stand: Stand) -> None:
    client = await stand.client()
    client.send(b"POST /cold HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab")
    await asyncio.sleep(0)
    client.send(b"cXX")
    assert (await client.answer()).status == 400
    assert await client.closed()
