"""How fast models make videos, in Redis: it outlives gangs, gateways and restarts, and goes with its model."""

from collections.abc import Callable
from typing import Any

from turnout.store.connection import RedisConnection, translated
from turnout.store.records import read_one
from turnout.tasks.pace_rules import PaceBook
from turnout.tasks.task_records import PACE_BOOK

_NOTHING = PaceBook()


class PaceStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._paces = link.keys.paces()

    async def book(self, model: str) -> PaceBook:
        async with translated():
            found = await self._link.client.hget(self._paces, model)
        return await read_one(self._link, PACE_BOOK, model, found) or _NOTHING

    async def change(self, model: str, act: Callable[[PaceBook], PaceBook]) -> None:
        """Two that change it at once both count."""

        async def changing(pipe: Any) -> None:
            found = await pipe.hget(self._paces, model)
            book = await read_one(self._link, PACE_BOOK, model, found) or _NOTHING
            pipe.multi()
            pipe.hset(self._paces, model, PACE_BOOK.dump(act(book)))

        async with translated():
            await self._link.client.transaction(changing, self._paces)
