"""What `records.set_aside` has kept, for operators."""

from typing import cast

from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text


class DeadRecords:
    """By kind ("task", "model", …) and the record's own name."""

    def __init__(self, link: RedisConnection) -> None:
        self._client = link.client
        self._key = link.keys.dead()

    async def count(self) -> int:
        async with translated():
            return int(await self._client.hlen(self._key))

    async def names(self) -> list[tuple[str, str]]:
        """(kind, name) of each, sorted."""
        async with translated():
            found = await self._client.hkeys(self._key)
        split = [text(field).rpartition(" ") for field in found]  # a kind may have spaces, a name has none
        return sorted((kind, name) for kind, _, name in split)

    async def find(self, kind: str, name: str) -> bytes | None:
        async with translated():
            return cast("bytes | None", await self._client.hget(self._key, f"{kind} {name}"))

    async def drop(self, kind: str, name: str) -> bool:
        """False when there was none."""
        async with translated():
            return bool(await self._client.hdel(self._key, f"{kind} {name}"))
