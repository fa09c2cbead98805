"""Tells the claims that are held open at this gateway that a task of their model may be there.

One is told at a time, the longest waiting first; who got a task passes the word on, because there may be more. So an arrival
costs two claims, however many gangs wait.
"""

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from turnout.errors import Unavailable
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text
from turnout.telemetry.log import get_log

_LOOK_S = 2.0  # in case an entry was missed: a reconnect, a trimmed stream


class Arrivals:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._waiting: defaultdict[str, dict[WaitingClaim, None]] = defaultdict(dict)
        self.stopping = False

    async def run(self) -> None:
        cursor: bytes | str = "$"
        while True:
            try:
                async with translated(_LOOK_S + 5):
                    read: list[Any] = await self._link.client.xread(
                        {self._link.keys.news(): cursor}, count=1000, block=int(_LOOK_S * 1000)
                    )
            except Unavailable as err:
                get_log().warning("arrivals of tasks not read, trying again", error=str(err))
                await asyncio.sleep(_LOOK_S / 4)
                read = []
            entries: list[tuple[bytes, dict[bytes, bytes]]] = read[0][1] if read else []
            if entries:
                cursor = entries[-1][0]
            models = {text(fields[b"q"]) for _, fields in entries if b"q" in fields}
            for model in models if entries else tuple(self._waiting):
                self.tell(model)

    def stop(self) -> None:
        """No claim waits any more, so that a server can stop without waiting for them."""
        self.stopping = True
        for claims in self._waiting.values():
            for claim in claims:
                claim.tell()

    def tell(self, model: str) -> None:
        """Tells the next that waits."""
        for claim in self._waiting.get(model, ()):
            if not claim.told and not claim.aside:
                claim.tell()
                return

    def pass_over(self, model: str, claim: "WaitingClaim") -> None:
        """Its gang gets nothing now: the word goes to the next, and until it looks again no other comes to it."""
        claim.aside = True
        self.tell(model)

    @contextmanager
    def waiting(self, model: str) -> "Generator[WaitingClaim]":
        """In line for the model's tasks. Who leaves after it was told, without having looked, passes the word on."""
        claim = WaitingClaim()
        self._waiting[model][claim] = None
        try:
            yield claim
        finally:
            del self._waiting[model][claim]
            if not self._waiting[model]:
                del self._waiting[model]
            elif claim.told and not self.stopping:
                self.tell(model)


class WaitingClaim:
    def __init__(self) -> None:
        self._told = asyncio.Event()
        self.aside = False

    @property
    def told(self) -> bool:
        return self._told.is_set()

    def tell(self) -> None:
        self._told.set()

    def look(self) -> None:
        """It looks now: what comes from now on is told again."""
        self._told.clear()
        self.aside = False

    async def wait(self, limit_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._told.wait()
