"""Clients that cost little, so that what is measured is the server: bytes in, bytes out, on a bare protocol.

A closed loop has one request under way on each connection: the next is sent when the answer is complete. Or each
connection sends at a rate, as long as the answers come in time.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psutil

from benchmarks.machine import cpu_s

_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Run:
    """`latencies_s` has one entry for each answer; the CPU seconds are those spent during the run."""

    seconds: float
    latencies_s: list[float]
    client_cpu_s: float
    cpu_s: dict[str, float]

    @property
    def rate(self) -> float:
        return len(self.latencies_s) / self.seconds


class _Connection(asyncio.Protocol):
    """`length` says how long the answer at the start of a buffer is, or None when it is not complete yet."""

    def __init__(self, greeting: bytes, request: bytes, length: Callable[[bytes], int | None]) -> None:
        self._greeting = greeting
        self._request = request
        self._length = length
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._until = 0.0
        self._sent_at = 0.0
        self._period_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._latencies: list[float] = []
        self._done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self.greeted = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._greeting:
            self._transport.write(self._greeting)
        else:
            self.greeted.set_result(None)

    def start(self, until: float, period_s: float, delay_s: float) -> asyncio.Future[list[float]]:
        """The first request after `delay_s`; the next when the last is answered, but not before `period_s` have passed."""
        self._until = until
        self._period_s = period_s
        self._loop.call_later(delay_s, self._send) if delay_s else self._send()
        return self._done

    def close(self) -> None:
        assert self._transport
        self._transport.close()

    def _send(self) -> None:
        assert self._transport
        self._sent_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            length = self._length(self._buffer)
        except ValueError as err:
            return self.connection_lost(err)
        if length is None:
            return
        self._buffer = self._buffer[length:]
        if not self.greeted.done():
            self.greeted.set_result(None)
            return
        now = time.perf_counter()
        self._latencies.append(now - self._sent_at)
        pause_s = max(0.0, self._sent_at + self._period_s - now)
        if now + pause_s < self._until:
            self._loop.call_later(pause_s, self._send) if pause_s else self._send()
        else:
            self._done.set_result(self._latencies)

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self.greeted, self._done):
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("the server closed the connection"))


class Target:
    """Where to connect and what to say there again and again."""

    def __init__(
        self,
        address: tuple[str, int] | Path,
        request: bytes,
        length: Callable[[bytes], int | None],
        greeting: bytes = b"",
    ) -> None:
        self._address = address
        self._request = request
        self._length = length
        self._greeting = greeting

    async def run(
        self, connections: int, seconds: float, watched: dict[str, psutil.Process], rate: float | None = None
    ) -> Run:
        """A closed loop on each of `connections`, or so many requests a second on all of them together; `watched` are the
        processes whose CPU time counts."""
        period_s = connections / rate if rate else 0.0
        opened = [await self._open() for _ in range(connections)]
        client = psutil.Process()
        before = {name: cpu_s(process) for name, process in watched.items()}
        client_before, began = cpu_s(client), time.perf_counter()
        try:
            async with asyncio.timeout(seconds + _PATIENCE_S):
                latencies = await asyncio.gather(
                    *[
                        c.start(began + seconds, period_s, place * period_s / connections)
                        for place, c in enumerate(opened)
                    ]
                )
        finally:
            for connection in opened:
                connection.close()
        return Run(
            time.perf_counter() - began,
            [one for many in latencies for one in many],
            cpu_s(client) - client_before,
            {name: cpu_s(process) - before[name] for name, process in watched.items()},
        )

    async def _open(self) -> _Connection:
        loop = asyncio.get_running_loop()

        def make() -> _Connection:
            return _Connection(self._greeting, self._request, self._length)

        if isinstance(self._address, Path):
            _, connection = await loop.create_unix_connection(make, str(self._address))
        else:
            _, connection = await loop.create_connection(make, *self._address)
        await asyncio.wait_for(connection.greeted, _PATIENCE_S)
        return connection


def http_request(method: str, path: str, port: int, api_key: str, body: bytes = b"") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {api_key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def http_length(buffer: bytes) -> int | None:
    """The length of an answer with a Content-Length; raises ValueError when it is not 200."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = buffer[:end].lower()
    if not head.startswith(b"http/1.1 200"):
        raise ValueError(buffer[:500].decode(errors="replace"))
    at = head.index(b"\r\ncontent-length:") + 17
    stop = head.find(b"\r\n", at)
    total = end + 4 + int(head[at : stop if stop > 0 else end])
    return total if len(buffer) >= total else None


def redis_command(words: Sequence[bytes]) -> bytes:
    parts = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
    return b"*%d\r\n%b" % (len(words), parts)


def redis_length(buffer: bytes) -> int | None:
    """The length of a simple or bulk string; raises ValueError when Redis refused."""
    end = buffer.find(b"\r\n")
    if end < 0:
        return None
    if buffer[:1] == b"-":
        raise ValueError(buffer[:200].decode(errors="replace"))
    total = end + 2 if buffer[:1] == b"+" else end + 4 + int(buffer[1:end])
    return total if len(buffer) >= total else None
