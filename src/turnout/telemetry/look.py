"""One thing that a scrape reads: it may take half a second and no more, and what was read before stays."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from turnout.errors import Unavailable

LOOK_S = 0.5
"""Prometheus gives up after some seconds, and then says that the gateway is down."""


class Look:
    """`read` keeps what it read where it is told from; it raises Unavailable, and then keeps nothing new."""

    def __init__(self, name: str, read: Callable[[], Awaitable[object]]) -> None:
        self.name = name
        self._read = read
        self._at: float | None = None
        self.succeeded = False

    async def take(self) -> None:
        self.succeeded = False
        try:
            async with asyncio.timeout(LOOK_S):
                await self._read()
        except (Unavailable, TimeoutError):
            return
        self.succeeded, self._at = True, time.monotonic()

    @property
    def age_s(self) -> float | None:
        """How old is what was read last; None if nothing ever was."""
        return None if self._at is None else 0.0 if self.succeeded else time.monotonic() - self._at
