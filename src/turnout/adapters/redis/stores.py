"""The small stores in Redis: keys, webhooks to send, and rights held by one process at a time."""

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.task_log import RedisTaskLog
from turnout.domain.errors import NotFound
from turnout.domain.keys import Key
from turnout.domain.tasks import TaskId
from turnout.ports import Delivery
from turnout.schemas.task_records import dump_key, load_key

_TRIES_TTL_S = 7 * 86_400


class RedisKeyStore:
    def __init__(self, link: RedisConnection) -> None:
        self._client = link.client
        self._name = link.key("keys")

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


class RedisOutbox:
    def __init__(self, link: RedisConnection, tasks: RedisTaskLog) -> None:
        self._client = link.client
        self._link = link
        self._tasks = tasks
        self._name = link.key("outbox")

    async def due(self, now: float, hold_s: float, limit: int) -> list[Delivery]:
        async with translated():
            ids = await self._client.zrangebyscore(self._name, "-inf", int(now * 1000), start=0, num=limit)
        found: list[Delivery] = []
        for raw in ids:
            task_id = TaskId(raw.decode())
            async with translated():
                await self._client.zadd(self._name, {task_id: int((now + hold_s) * 1000)}, xx=True)
                tries = await self._client.get(self._link.key("webhook", task_id))
            try:
                found.append(Delivery(await self._tasks.get(task_id), int(tries or 0)))
            except NotFound:
                await self.done(task_id)
        return found

    async def done(self, task_id: TaskId) -> None:
        async with translated():
            await self._client.zrem(self._name, task_id)
            await self._client.delete(self._link.key("webhook", task_id))

    async def again(self, task_id: TaskId, at: float) -> None:
        async with translated():
            tries = self._link.key("webhook", task_id)
            await self._client.incr(tries)
            await self._client.expire(tries, _TRIES_TTL_S)
            await self._client.zadd(self._name, {task_id: int(at * 1000)}, xx=True)


class RedisMutex:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def hold(self, name: str, owner: str, ttl_s: float) -> bool:
        return bool(await self._link.run("mutex", name, owner, int(ttl_s * 1000)))

    async def drop(self, name: str, owner: str) -> None:
        if await self.holder(name) == owner:
            async with translated():
                await self._link.client.delete(self._link.key("mutex", name))

    async def holder(self, name: str) -> str | None:
        async with translated():
            found = await self._link.client.get(self._link.key("mutex", name))
        return found.decode() if found else None
