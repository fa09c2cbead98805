"""API keys in Redis: one hash by key id."""

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.domain.keys import Key
from turnout.schemas.task_records import dump_key, load_key


class RedisKeyStore:
    def __init__(self, link: RedisConnection) -> None:
        self._client = link.client
        self._name = link.keys.keys()

    async def add(self, key: Key) -> None:
        async with translated():
            await self._client.hset(self._name, key.id, dump_key(key))

    async def find(self, key_id: str) -> Key | None:
        async with translated():
            found = await self._client.hget(self._name, key_id)
        return load_key(found) if found else None

    async def all(self) -> list[Key]:
        async with translated():
            found = await self._client.hvals(self._name)
        return sorted((load_key(k) for k in found), key=lambda k: k.created_at)

    async def revoke(self, key_id: str) -> bool:
        async with translated():
            return bool(await self._client.hdel(self._name, key_id))
