"""API keys in Redis: one hash by key id."""

from collections.abc import Collection, Mapping

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.domain.keys import Key
from turnout.schemas.task_records import dump_key, load_key


class RedisKeyStore:
    def __init__(self, link: RedisConnection) -> None:
        self._client = link.client
        self._name = link.keys.keys()

    async def add(self, *keys: Key) -> None:
        async with translated():
            await self._client.hset(self._name, mapping={key.id: dump_key(key) for key in keys})

    async def find(self, key_id: str) -> Key | None:
        async with translated():
            found = await self._client.hget(self._name, key_id)
        return load_key(found) if found else None

    async def find_all(self, key_ids: Collection[str]) -> Mapping[str, Key | None]:
        ids = list(key_ids)
        if not ids:
            return {}
        async with translated():
            found = await self._client.hmget(self._name, ids)
        return {id_: load_key(data) if data else None for id_, data in zip(ids, found, strict=True)}

    async def all(self) -> list[Key]:
        async with translated():
            found = await self._client.hvals(self._name)
        return sorted((load_key(k) for k in found), key=lambda k: k.created_at)

    async def revoke(self, key_id: str) -> bool:
        async with translated():
            return bool(await self._client.hdel(self._name, key_id))
