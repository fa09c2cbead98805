"""Rights that one process holds at a time, in Redis: a key each, which lapses by itself."""

from turnout.store import scripts
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text


class Mutex:
    """A named right that one process holds at a time and that lapses by itself."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def hold(self, name: str, owner: str, ttl_s: float) -> bool:
        """Takes or renews; False when another holds it."""
        return await scripts.hold_mutex(self._link, name=name, owner=owner, ttl_ms=int(ttl_s * 1000))

    async def drop(self, name: str, owner: str) -> None:
        if await self.holder(name) == owner:
            async with translated():
                await self._link.client.delete(self._link.keys.mutex(name))

    async def holder(self, name: str) -> str | None:
        async with translated():
            found = await self._link.client.get(self._link.keys.mutex(name))
        return text(found) if found else None
