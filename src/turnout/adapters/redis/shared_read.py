"""Many waiters, one blocking read: whoever waits first reads the stream for all, and hands over when it leaves."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from turnout.adapters.redis.connection import RedisConnection, translated

_LOOK_S = 2.0


class SharedRead:
    """Wakes those who wait for a name when an entry `{field: name}` is added to the stream.

    A ring may be missed (a reconnect, a trimmed stream): who waits looks again every few seconds.
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
        """What rings for the name from now on."""
        if self._cursor is None:
            async with translated():
                newest = await self._link.client.xrevrange(self._stream, count=1)
            self._cursor = self._cursor or (newest[0][0] if newest else b"0")
        ring = asyncio.Event()
        self._waiters[name].add(ring)
        try:
            yield ring
        finally:
            self._waiters[name].discard(ring)
            if not self._waiters[name]:
                del self._waiters[name]

    async def wait(self, ring: asyncio.Event, deadline: float) -> None:
        """Returns when it rang, by the deadline, or when it is time to look anyway."""
        until = min(deadline, time.monotonic() + _LOOK_S)
        if self._reading:
            try:
                await asyncio.wait_for(ring.wait(), max(0.0, until - time.monotonic()))
            except TimeoutError:
                return
            return
        self._reading = True
        try:
            while not ring.is_set() and (left_s := until - time.monotonic()) > 0:
                await self._read(left_s)
        finally:
            self._reading = False
            self._hand_over(ring)

    async def _read(self, limit_s: float) -> None:
        async with translated(limit_s + 5):
            read = await self._link.client.xread(
                {self._stream: self._cursor}, count=1000, block=max(1, int(limit_s * 1000))
            )
        for _, entries in read:
            for entry, fields in entries:
                self._cursor = entry
                for ring in self._waiters.get(fields.get(self._field, b"").decode(), ()):
                    ring.set()

    def _hand_over(self, mine: asyncio.Event) -> None:
        """Wakes one of the others, which looks for itself and then reads on."""
        for rings in self._waiters.values():
            for ring in rings:
                if ring is not mine and not ring.is_set():
                    ring.set()
                    return
