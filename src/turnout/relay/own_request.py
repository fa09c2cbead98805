"""A request of this process's own. It goes the way of a client's: it is admitted, may wait for a model, is tried at other
replicas, and is counted."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from turnout.errors import TurnoutError
from turnout.relay.exchange import Exchange
from turnout.relay.framing import Head, Headers
from turnout.relay.relay_context import RelayContext
from turnout.relay.request_ids import new_request_id

_LINES = b"content-type: application/json\r\n"


class OwnAnswer(NamedTuple):
    status: int
    body: bytes


class _WrittenResponse(asyncio.Transport):
    """Where the response is written. With more than `max_bytes` there is none."""

    def __init__(self, max_bytes: int, on_full: Callable[[], None]) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._on_full = on_full
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if len(self.written) + len(data) > self._max_bytes:
            self._on_full()
        else:
            self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)


class OwnClient:
    """The connection that such a request seems to come on. It reads as fast as the answer comes."""

    write_paused = False
    address = ""

    def __init__(self, context: RelayContext, max_bytes: int) -> None:
        self._context = context
        self._exchange: Exchange | None = None
        self._ended = asyncio.Event()
        self._broken = False
        self.loop = asyncio.get_running_loop()
        self.transport = _WrittenResponse(max_bytes, self.reset)

    async def ask(
        self, path: bytes, authorization: bytes | None, headers: Headers, body: bytes
    ) -> OwnAnswer | None:
        """None for an answer that broke off, or has more than `max_bytes`. Whoever gives up cancels this."""
        head = Head(path, authorization, headers, _LINES, len(body), False, True, False)
        self._exchange = exchange = Exchange(self, self._context, head, body, new_request_id())
        self._context.connections.add(self)
        self._context.watch()
        try:
            exchange.start()
            await self._ended.wait()
        finally:
            self._context.connections.discard(self)
            exchange.client_lost()  # nothing happens to one that has ended
        if self._broken:
            return None
        first, _, content = bytes(self.transport.written).partition(b"\r\n\r\n")
        return OwnAnswer(int(first.split(b" ", 2)[1]), content)

    # --- What the exchange calls.
    def response_ended(self, keep_alive: bool) -> None:
        self._ended.set()

    def reset(self) -> None:
        self._broken = True
        self._ended.set()

    # --- What the relay calls.
    def tick(self, now: float) -> None:
        if self._exchange is not None:
            self._exchange.tick(now)

    def close(self, err: TurnoutError | None = None) -> None:
        if self._exchange is not None:
            self._exchange.close(err)
