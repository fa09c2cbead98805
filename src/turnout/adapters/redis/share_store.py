"""Shared videos in Redis: one hash for each video."""

from collections.abc import Sequence

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.records import read_all, read_one, text
from turnout.domain.shares import Share
from turnout.domain.tasks import TaskId
from turnout.schemas.task_records import SHARE

_TTL_S = 31 * 86_400  # longer than any share lives


class RedisShareStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._name = link.keys.shares

    async def add(self, share: Share) -> None:
        name = self._name(share.task)
        async with translated(), self._client.pipeline() as pipe:
            pipe.hset(name, share.id, SHARE.dump(share))
            pipe.expire(name, _TTL_S)
            await pipe.execute()

    async def find(self, task: TaskId, share_id: str) -> Share | None:
        async with translated():
            found = await self._client.hget(self._name(task), share_id)
        return await read_one(self._link, "share", share_id, found, SHARE.load)

    async def of(self, task: TaskId) -> Sequence[Share]:
        async with translated():
            found = await self._client.hgetall(self._name(task))
        named = {text(share): data for share, data in found.items()}
        shares = await read_all(self._link, "share", named, SHARE.load)
        return sorted(shares.values(), key=lambda share: share.expires_at)

    async def remove(self, task: TaskId, *share_ids: str) -> int:
        async with translated():
            return int(await self._client.hdel(self._name(task), *share_ids)) if share_ids else 0
