"""One blocking read of a stream for many waiters. The first waiter reads for all; when it leaves, another one reads on."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text

_MAX_WAIT_S = 2.0


class SharedRead:
    """Wakes those who wait for a name when an entry `{field: name}` is added to the stream.

    An entry may be missed (a reconnect, a trimmed stream), so `wait` also returns every few seconds.
    """

    def __init__(self, link: RedisConnection, stream: str, field: str) -> None:
        self._link = link
        self._stream = stream
        self._field = field.encode()
        self._cursor: bytes | None = None
        self._reading = False
        self._waiters: dict[str, set[asyncio.Event]] = defaultdict(set)

    @asynccontextmanager
    async def listening(self, name: str) -> AsyncGenerator[asyncio.Event]:
        """An event that is set when an entry for the name is added from now on."""
        if self._cursor is None:
            async with translated():
                newest = await self._link.client.xrevrange(self._stream, count=1)
            self._cursor = self._cursor or (newest[0][0] if newest else b"0")
        event = asyncio.Event()
        self._waiters[name].add(event)
        try:
            yield event
        finally:
            self._waiters[name].discard(event)
            if not self._waiters[name]:
                del self._waiters[name]

    async def wait(self, event: asyncio.Event, deadline: float) -> None:
        """Returns when the event is set, at the deadline, or after a few seconds in case an entry was missed."""
        until = min(deadline, time.monotonic() + _MAX_WAIT_S)
        if self._reading:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    await event.wait()
            return
        self._reading = True
        try:
            while not event.is_set() and (left_s := until - time.monotonic()) > 0:
                await self._read(left_s)
        finally:
            self._reading = False
            self._hand_over(event)

    async def _read(self, limit_s: float) -> None:
        async with translated(limit_s + 5):
            read = await self._link.client.xread(
                {self._stream: self._cursor}, count=1000, block=max(1, int(limit_s * 1000))
            )
        for _, entries in read:
            for entry, fields in entries:
                self._cursor = entry
                for event in self._waiters.get(text(fields.get(self._field, b"")), ()):
                    event.set()

    def _hand_over(self, mine: asyncio.Event) -> None:
        """Wakes one of the others, which checks what it waits for and then reads on."""
        for events in self._waiters.values():
            for event in events:
                if event is not mine and not event.is_set():
                    event.set()
                    return
