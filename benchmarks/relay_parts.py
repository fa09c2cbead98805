"""What stands behind a proxy when it is measured: `python -m benchmarks.relay_parts --port PORT`.

An engine that costs almost nothing: it knows where a request ends and answers with bytes that were made beforehand. As
engines do, it tells usage in an event of its own to those who ask for it.
"""

import argparse
import asyncio
import json
from typing import cast

import uvloop

EVENTS = 50
PACE_S = 0.02
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
    delta = [{"index": 0, "delta": {"content": f" word{n}"}}]
    return _told({"choices": delta})


def _told(more: dict[str, object]) -> bytes:
    said = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    return b"data: %b\n\n" % json.dumps(said | more).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_ANSWER = _json_answer()
_MODELS = b'{"object":"list","data":[{"id":"bench","object":"model"}]}'
_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_MODELS),
    _MODELS,
)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_DONE = b"data: [DONE]\n\n"
_BEGINNING = [_chunk(_event(n)) for n in range(EVENTS - 1)]
_LAST = _event(EVENTS - 1)
_CHUNKS = [*_BEGINNING, _chunk(_LAST + _DONE) + b"0\r\n\r\n"]
_COUNTED = [*_BEGINNING, _chunk(_LAST + _told({"choices": [], "usage": _USAGE}) + _DONE) + b"0\r\n\r\n"]


class Engine(asyncio.Protocol):
    """One connection of the upstream. Every request is small and says its length."""

    def __init__(self) -> None:
        self._buffer = b""
        self._chunks = _CHUNKS
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
        if buffer.startswith((b"GET ", b"POST /v1/traces")):
            self._transport.write(
                _HEALTHY
            )  # some routers ask how it is and what it has before they send anything
        elif buffer.find(b"whole: ", end) >= 0:
            self._transport.write(_ANSWER)
        elif buffer.find(b"burst: ", end) >= 0:
            # Not one write: an engine sends each event as it comes, and here they come as fast as they can be sent.
            self._chunks = _COUNTED if buffer.find(b'"include_usage":true', end) >= 0 else _CHUNKS
            self._transport.write(_STREAM_HEAD + _CHUNKS[0])
            self._loop.call_soon(self._burst, 1)
        else:
            self._chunks = _COUNTED if buffer.find(b'"include_usage":true', end) >= 0 else _CHUNKS
            self._transport.write(_STREAM_HEAD + _CHUNKS[0])
            self._loop.call_later(PACE_S, self._next, 1)

    def _burst(self, n: int) -> None:
        assert self._transport
        if not self._transport.is_closing():
            self._transport.write(self._chunks[n])
            if n + 1 < EVENTS:
                self._loop.call_soon(self._burst, n + 1)

    def _next(self, n: int) -> None:
        assert self._transport
        if not self._transport.is_closing():
            self._transport.write(self._chunks[n])
            if n + 1 < EVENTS:
                self._loop.call_later(PACE_S, self._next, n + 1)


async def run_upstream(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay_parts", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(run_upstream(parser.parse_args().port))


if __name__ == "__main__":
    main()
