"""What stands on both sides of a proxy when it is measured: `python -m benchmarks.relay_parts upstream|relay …`.

`upstream` is an engine that costs almost nothing: it knows where a request ends and answers with bytes that were made
beforehand. `relay` is Turnout's relay with a desk that looks keys and models up, counts what is in flight per replica
and per tenant, takes the least loaded of the replicas and notes times, as the gateway's desk does.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from typing import cast

import uvicorn
import uvloop

from turnout.adapters.relay import Ask, Outcome, Relay, RelaySettings, Target, Ticket
from turnout.domain.errors import Limited, NotFound, Unauthorized

EVENTS = 50
PACE_S = 0.02
KEY = "tk-bench.0123456789abcdef"
PATH = "/v1/chat/completions"

_USAGE = {"prompt_tokens": 80, "completion_tokens": EVENTS, "total_tokens": 80 + EVENTS}


def asked(kind: str) -> bytes:
    """A request for one answer ("whole"), for events as fast as they go ("burst"), or for some now and then ("paced")."""
    messages = [{"role": "user", "content": f"{kind}: " + "Say something. " * 20}]
    return json.dumps({"model": "bench", "messages": messages, "stream": kind != "whole"}).encode()


def _json_answer() -> bytes:
    message = {"role": "assistant", "content": "Something was said. " * 20}
    said = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "bench"}
    body = json.dumps(said | {"choices": [{"index": 0, "message": message}], "usage": _USAGE}).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _event(n: int) -> bytes:
    said = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    last = n == EVENTS - 1
    said |= {"choices": [{"index": 0, "delta": {"content": f" word{n}"}}], "usage": _USAGE if last else None}
    data = b"data: %b\n\n" % json.dumps(said).encode() + (b"data: [DONE]\n\n" if last else b"")
    return b"%x\r\n%b\r\n" % (len(data), data) + (b"0\r\n\r\n" if last else b"")


_ANSWER = _json_answer()
_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_CHUNKS = [_event(n) for n in range(EVENTS)]


class Engine(asyncio.Protocol):
    """One connection of the upstream. Every request is small and says its length."""

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = buffer[:end].lower()
        at = head.find(b"content-length:") + 15
        stop = head.find(b"\r\n", at)
        total = end + 4 + (int(head[at : stop if stop > 0 else end]) if at >= 15 else 0)
        if len(buffer) < total:
            return
        self._buffer = b""
        assert self._transport
        if buffer.startswith(b"GET "):
            self._transport.write(_HEALTHY)  # some routers ask before they send anything
        elif buffer.find(b"whole: ", end) >= 0:
            self._transport.write(_ANSWER)
        elif buffer.find(b"burst: ", end) >= 0:
            # Not one write: an engine sends each event as it comes, and here they come as fast as they can be sent.
            self._transport.write(_STREAM_HEAD + _CHUNKS[0])
            self._loop.call_soon(self._burst, 1)
        else:
            self._transport.write(_STREAM_HEAD + _CHUNKS[0])
            self._loop.call_later(PACE_S, self._next, 1)

    def _burst(self, n: int) -> None:
        assert self._transport
        if not self._transport.is_closing():
            self._transport.write(_CHUNKS[n])
            if n + 1 < EVENTS:
                self._loop.call_soon(self._burst, n + 1)

    def _next(self, n: int) -> None:
        assert self._transport
        if not self._transport.is_closing():
            self._transport.write(_CHUNKS[n])
            if n + 1 < EVENTS:
                self._loop.call_later(PACE_S, self._next, n + 1)


class _Place(Ticket):
    __slots__ = ("_began_at", "_desk", "_replica")

    def __init__(self, desk: "BenchDesk", replica: int, path: bytes) -> None:
        super().__init__(desk.targets[replica], path)
        self._desk = desk
        self._replica = replica
        self._began_at = time.perf_counter()

    def first_byte(self) -> None:
        self._desk.first_byte_s += time.perf_counter() - self._began_at

    def finished(self, outcome: Outcome) -> None:
        desk = self._desk
        desk.flying[self._replica] -= 1
        desk.tenant_flying["acme"] -= 1
        desk.seconds += time.perf_counter() - self._began_at
        desk.statuses[outcome.status] = desk.statuses.get(outcome.status, 0) + 1
        if outcome.usage is not None:
            desk.tokens["acme"] += outcome.usage.completion_tokens

    def retry(self) -> Ticket:
        return self


class BenchDesk:
    """Keys, limits, routing and counts, all in dictionaries."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = targets
        self.keys = {f"Bearer {KEY}".encode(): "acme"}
        self.models = {b"bench": range(len(targets))}
        self.flying = [0] * len(targets)
        self.tenant_flying = {"acme": 0}
        self.tokens = {"acme": 0}
        self.statuses: dict[int, int] = {}
        self.first_byte_s = self.seconds = 0.0

    def greet(self, authorization: bytes | None) -> None:
        return None

    def admit(self, ask: Ask) -> Ticket:
        tenant = self.keys.get(ask.authorization or b"")
        if tenant is None:
            raise Unauthorized("The API key is not valid.", code="invalid_api_key")
        if self.tenant_flying[tenant] >= 10_000:
            raise Limited("Too many requests at once.", code="concurrency")
        at = ask.body.find(b'"model": "') + 10
        replicas = self.models.get(ask.body[at : ask.body.find(b'"', at)])
        if replicas is None:
            raise NotFound("There is no such model.", "model", "model_not_found")
        flying = self.flying
        best = min(replicas, key=flying.__getitem__)
        flying[best] += 1
        self.tenant_flying[tenant] += 1
        return _Place(self, best, ask.path)


async def _nothing(scope: object, receive: object, send: object) -> None:
    raise RuntimeError("only hot paths are measured")


async def run_upstream(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


async def run_relay(port: int, targets: Sequence[Target]) -> None:
    relay = Relay(BenchDesk(targets), RelaySettings(idle_per_target=256))
    settings = uvicorn.Config(
        _nothing,  # pyright: ignore[reportArgumentType]
        host="127.0.0.1",
        port=port,
        http=relay.protocol,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
    )
    await uvicorn.Server(settings).serve()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay_parts", description=__doc__)
    parser.add_argument("part", choices=("upstream", "relay"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--to", type=int, action="append", default=[], help="an upstream's port")
    options = parser.parse_args()
    if options.part == "upstream":
        uvloop.run(run_upstream(options.port))
    else:
        uvloop.run(run_relay(options.port, [Target("127.0.0.1", port) for port in options.to]))


if __name__ == "__main__":
    main()
