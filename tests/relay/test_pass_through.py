"""What goes through is what was sent, in both directions, however it was framed."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.relay.kit import CHAT, Call, Client, Replica, Stand, echo, post

from turnout.relay import Target
from turnout.relay.token_usage import read_usage

EVENTS = [b'data: {"n":%d}\n\n' % n for n in range(50)] + [b"data: [DONE]\n\n"]


async def stream(call: Call) -> None:
    await call.begin_events()
    for one in EVENTS:
        await call.chunk(one)
    await call.end()


async def test_json_comes_back_as_it_was_sent(stand: Stand) -> None:
    replica = await stand.replica(echo)
    client = await stand.client()
    for n in range(5):
        answer = await client.ask(b'{"n":%d}' % n)
        assert (answer.status, answer.body) == (200, b'{"n":%d}' % n)
        assert answer.headers[b"content-type"] == b"application/json"
    assert replica.connections == 1
    assert stand.admission.settled and stand.admission.failures == [None] * 5
    assert [call.first_bytes for call in stand.admission.calls] == [1] * 5


async def test_a_stream_of_events_comes_through(stand: Stand) -> None:
    await stand.replica(stream)
    client = await stand.client()
    for _ in range(3):
        answer = await client.ask(b'{"stream":true}')
        assert answer.body == b"".join(EVENTS)
        assert answer.headers[b"content-type"] == b"text/event-stream"
    assert stand.admission.outcomes[0].bytes_out == len(b"".join(EVENTS))


async def test_an_event_is_passed_on_at_once(stand: Stand) -> None:
    more = asyncio.Event()

    async def hesitant(call: Call) -> None:
        await call.begin_events()
        await call.chunk(EVENTS[0])
        await more.wait()
        await call.chunk(EVENTS[-1])
        await call.end()

    await stand.replica(hesitant)
    client = await stand.client()
    client.post()
    await client.head()
    assert await client.chunk() == EVENTS[0]
    more.set()
    assert await client.chunk() == EVENTS[-1]
    assert await client.chunk() == b""


async def test_an_event_that_comes_in_pieces_leaves_whole(stand: Stand) -> None:
    more = asyncio.Event()

    async def hesitant(call: Call) -> None:
        await call.begin_events()
        await call.chunk(b"data: 1\n\ndata: tw")
        await more.wait()
        await call.chunk(b"o\n\n")
        await call.end()

    await stand.replica(hesitant)
    client = await stand.client()
    client.post()
    await client.head()
    assert await client.chunk() == b"data: 1\n\n"
    more.set()
    assert await client.chunk() == b"data: two\n\n"


async def test_large_bodies_pass_both_ways(stand: Stand) -> None:
    await stand.replica(echo)
    client = await stand.client()
    body = bytes(range(256)) * 40_000  # 10 MB
    for _ in range(2):
        assert (await client.ask(body)).body == body


async def test_a_chunked_request_is_sent_on_with_its_length(stand: Stand) -> None:
    replica = await stand.replica(echo)
    client = await stand.client()
    client.send(b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT)
    client.send(b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: gone\r\nAuthorization: forged\r\n\r\n")
    assert (await client.answer()).body == b"abcde"
    headers = replica.requests[0].headers
    assert headers[b"content-length"] == b"5"
    assert b"transfer-encoding" not in headers and b"x-trailer" not in headers
    assert stand.admission.asks[0].authorization is None


async def test_a_request_may_come_byte_by_byte(stand: Stand) -> None:
    await stand.replica(echo)
    client = await stand.client()
    for byte in post(b'{"a":1}'):
        client.send(bytes((byte,)))
        await asyncio.sleep(0)
    assert (await client.answer()).body == b'{"a":1}'


async def test_only_chosen_headers_reach_the_replica(stand: Stand) -> None:
    replica = await stand.replica(echo)
    client = await stand.client()
    extra = (
        b"Authorization: Bearer tk-1\r\nCookie: a=b\r\nConnection: x-private, keep-alive\r\nX-Private: 1\r\n"
        b"Proxy-Authorization: no\r\nTE: trailers\r\nTraceparent: 00-1\r\nX-Request-Id: mine\r\n"
    )
    answer = await client.ask(b"{}", extra=extra)
    headers = replica.requests[0].headers
    assert set(headers) == {
        b"host",
        b"content-length",
        b"content-type",
        b"traceparent",
        b"x-request-id",
        b"x-inner",
    }
    assert headers[b"host"] == b"127.0.0.1:%d" % replica.target.port
    assert headers[b"x-inner"] == b"secret"
    assert headers[b"x-request-id"] == answer.headers[b"x-request-id"] == stand.admission.asks[0].request_id
    assert stand.admission.asks[0].authorization == b"Bearer tk-1"
    assert (b"cookie", b"a=b") in stand.admission.asks[0].headers


async def test_of_an_engines_headers_only_the_kind_of_its_body_reaches_the_client(stand: Stand) -> None:
    async def rogue(call: Call) -> None:
        await call.json(
            b"{}",
            extra=b"Connection: keep-alive, x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nServer: uvicorn\r\n"
            b"Upgrade: h2c\r\nProxy-Authenticate: x\r\nX-Any: yes\r\nX-Request-Id: theirs\r\n"
            b"Set-Cookie: turnout_session=thief\r\nLocation: /workers/w-1/drain\r\nRefresh: 0; url=//evil\r\n"
            b"Clear-Site-Data: *\r\nStrict-Transport-Security: max-age=9\r\nAlt-Svc: h3\r\n"
            b"Access-Control-Allow-Origin: *\r\nContent-Security-Policy: none\r\nX-Turnout-Budget: 0\r\n",
        )

    await stand.replica(rogue)
    answer = await (await stand.client()).ask()
    assert set(answer.headers) == {
        b"content-type",
        b"content-length",
        b"x-request-id",
        b"x-content-type-options",
    }
    assert answer.headers[b"x-request-id"] != b"theirs"


INVALID, SERVER = "invalid_request_error", "server_error"


@pytest.mark.parametrize(
    ("said", "status", "told"),
    [
        # llama.cpp, vLLM, FastAPI's own, a chat template, and whatever else
        (
            {"error": {"code": 400, "message": "m", "type": INVALID}},
            400,
            ("m", INVALID, None, "engine_error"),
        ),
        (
            {"error": {"message": "m", "type": "BadRequestError", "param": "top_p", "code": 400}},
            400,
            ("m", INVALID, "top_p", "engine_error"),
        ),
        ({"error": {"message": "m", "code": "context_length"}}, 400, ("m", INVALID, None, "context_length")),
        (
            {"error": {"message": "x\nJinja Exception: no tools"}},
            400,
            ("no tools", INVALID, None, "engine_error"),
        ),
        ({"detail": "m"}, 422, ("m", INVALID, None, "engine_error")),
        ("words", 500, ('"words"', SERVER, None, "engine_error")),
        (
            {"error": {"code": 404, "message": "no such adapter"}},
            404,
            ("no such adapter", INVALID, None, "engine_error"),
        ),
    ],
)
async def test_an_error_of_the_engine_has_the_shape_of_ours(
    stand: Stand, said: object, status: int, told: tuple[str, str, str | None, str]
) -> None:
    async def refuse(call: Call) -> None:
        await call.json(json.dumps(said).encode(), b"%d X" % status)

    await stand.replica(refuse)
    client = await stand.client()
    for _ in range(2):  # the connections go on
        answer = await client.ask()
        message, kind, param, code = told
        error = {"message": message, "type": kind, "param": param, "code": code}
        assert (answer.status, json.loads(answer.body)) == (status, {"error": error})
    assert stand.admission.outcomes[0].status == status


@pytest.mark.parametrize(
    "said",
    [b'{"detail":"Not Found"}', b'{"error":{"code":404,"message":"File Not Found"}}', b"404 page not found"],
)
async def test_a_path_that_the_engine_lacks_is_not_implemented(stand: Stand, said: bytes) -> None:
    async def lacks(call: Call) -> None:
        await call.json(said, b"404 Not Found")

    await stand.replica(lacks)
    answer = await (await stand.client()).ask(path=b"/v1/responses")
    problem = json.loads(answer.body)["error"]
    assert (answer.status, problem["code"]) == (501, "not_supported")
    assert problem["message"] == "The model's engine has no /v1/responses."


async def test_an_error_that_breaks_off_is_told_as_the_replicas_fault(stand: Stand) -> None:
    async def dies(call: Call) -> None:
        await call.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 100\r\n\r\n{")
        call.die()

    await stand.replica(dies)
    answer = await (await stand.client()).ask()
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "replica_lost")


async def test_an_answer_that_ends_with_its_connection_is_chunked(stand: Stand) -> None:
    async def old(call: Call) -> None:
        await call.send(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + b"x" * 100_000)
        call.writer.close()

    replica = await stand.replica(old)
    client = await stand.client()
    for _ in range(2):
        assert (await client.ask()).body == b"x" * 100_000
    assert replica.connections == 2


async def test_interim_answers_are_not_passed_on(stand: Stand) -> None:
    async def interim(call: Call) -> None:
        await call.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        await call.json(b"{}")

    await stand.replica(interim)
    client = await stand.client()
    for _ in range(2):
        answer = await client.ask()
        assert answer.status == 200 and b"link" not in answer.headers


async def test_expect_continue_is_answered_before_the_body(stand: Stand) -> None:
    await stand.replica(echo)
    client = await stand.client()
    client.send(b"POST %b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n" % CHAT)
    assert (await client.head())[0] == 100
    client.send(b"{}")
    assert (await client.answer()).body == b"{}"


async def test_http_1_0_gets_no_chunks_and_is_closed(stand: Stand) -> None:
    await stand.replica(stream)
    client = await stand.client()
    client.send(b"POST %b HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}" % CHAT)
    answer = await client.answer()
    assert answer.body == b"".join(EVENTS)
    assert answer.headers[b"connection"] == b"close" and b"transfer-encoding" not in answer.headers


async def test_a_query_and_an_absolute_address_are_hot_too(stand: Stand) -> None:
    replica = await stand.replica(echo)
    client = await stand.client()
    assert (await client.ask(path=CHAT + b"?a=b")).body == b"{}"
    assert (await client.ask(path=b"http://elsewhere:99" + CHAT)).body == b"{}"
    assert [request.line for request in replica.requests] == [b"POST %b HTTP/1.1" % CHAT] * 2
    assert [ask.path for ask in stand.admission.asks] == [CHAT, CHAT]


@pytest.mark.parametrize("close", [True, False])
async def test_connection_close_is_honoured(stand: Stand, close: bool) -> None:
    await stand.replica(echo)
    client = await stand.client()
    answer = await client.ask(extra=b"Connection: close\r\n" if close else b"")
    assert (answer.headers.get(b"connection") == b"close") is close
    if close:
        assert await client.closed()
    else:
        assert (await client.ask()).status == 200


async def test_other_requests_reach_the_app_on_the_same_connection(stand: Stand) -> None:
    await stand.replica(echo)
    client = await stand.client()
    for n in range(3):
        body = b'{"n":%d}' % n
        assert (await client.ask(body)).body == body
        assert (await client.ask(body, path=b"/v1/videos")).body == b"app /v1/videos " + body
        client.send(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % CHAT)
        assert (await client.answer()).body == b"app /v1/chat/completions "
    assert len(stand.admission.calls) == 3


async def test_pipelined_requests_are_answered_in_order(stand: Stand) -> None:
    await stand.replica(echo)
    client = await stand.client()
    batch = b""
    expected: list[bytes] = []
    for n in range(60):
        body = b'{"n":%d}' % n
        if n % 3 == 1:
            batch += post(body, b"/cold")
            expected.append(b"app /cold " + body)
        else:
            batch += post(body)
            expected.append(body)
    client.send(batch)
    assert [(await client.answer()).body for _ in expected] == expected
    client.send(batch[: len(batch) // 2])
    await asyncio.sleep(0)
    client.send(batch[len(batch) // 2 :])
    assert [(await client.answer()).body for _ in expected] == expected
    assert stand.admission.settled


async def test_many_connections_share_few_links(stand: Stand) -> None:
    replica = await stand.replica(stream)
    clients = [await stand.client() for _ in range(32)]

    async def work(client: Client) -> None:
        for _ in range(5):
            assert (await client.ask()).body == b"".join(EVENTS)

    await asyncio.gather(*map(work, clients))
    assert replica.connections <= 32
    assert stand.admission.settled and stand.admission.failures == [None] * 160


async def test_usage_is_read_from_streams_and_bodies(stand: Stand) -> None:
    usage = b'"usage":{"prompt_tokens":12,"total_tokens":46,"completion_tokens":34}'

    async def count(call: Call) -> None:
        if b"stream" in call.request.body:
            await call.begin_events()
            for one in EVENTS[:-1]:
                await call.chunk(one)
            await call.chunk(b'data: {"choices":[],%b}\n\n' % usage)
            await call.chunk(EVENTS[-1])
            await call.end()
        else:
            padding = b"x" * 100_000
            await call.json(b'{"choices":["%b"],%b}' % (padding, usage))

    await stand.replica(count)
    client = await stand.client()
    await client.ask(b'{"stream":true}')
    await client.ask(b"{}")
    await wait_until(lambda: len(stand.admission.outcomes) == 2, "both outcomes")
    assert [outcome.usage for outcome in stand.admission.outcomes] == [(12, 34), (12, 34)]


async def test_a_replica_may_listen_on_a_unix_socket(stand: Stand, tmp_path: Path) -> None:
    replica = Replica(echo)
    path = str(tmp_path / "s")
    server = await asyncio.start_unix_server(replica.serve, path)
    stand.admission.targets.append(Target("engine", 0, unix=path))
    client = await stand.client()
    for _ in range(2):
        assert (await client.ask()).body == b"{}"
    assert replica.requests[0].headers[b"host"] == b"engine"
    server.close()
    replica.stop()


async def test_an_app_learns_that_its_client_is_gone_whatever_waits_behind(stand: Stand) -> None:
    client = await stand.client()
    client.send(b"POST /cold HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
    await wait_until(lambda: bool(stand.tasks), "the app to be asked")
    client.hang_up()
    await wait_until(lambda: not stand.tasks, "the app to end")


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (b'{"prompt_tokens":12345678901234567890123,"completion_tokens":1}', None),
        (b'{"prompt_tokens":1,"completion_tokens":12345678901234567890123}', (1, 0)),
        (b'{"prompt_tokens":  999999999 ,"completion_tokens":7}', (999999999, 7)),
    ],
)
def test_a_count_that_cannot_be_is_none(told: bytes, usage: tuple[int, int] | None) -> None:
    assert read_usage(told) == usage


async def test_a_relay_that_leaves_serves_on_and_asks_clients_to_connect_anew(stand: Stand) -> None:
    await stand.replica(echo)
    hot, cold = await stand.client(), await stand.client()
    assert b"connection" not in (await hot.ask()).headers  # its head is known from now on
    stand.relay.leave()
    for client, path in ((hot, CHAT), (cold, b"/other")):
        answer = await client.ask(path=path)
        assert (answer.status, answer.headers[b"connection"]) == (200, b"close")
        assert await client.closed()
    assert (await (await stand.client()).ask()).status == 200
