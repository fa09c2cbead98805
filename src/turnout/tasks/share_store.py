"""Shared videos in Redis: one hash for each video."""

import secrets
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all, read_one, text
from turnout.tasks.share_rules import Share, VideoLink
from turnout.tasks.task_rules import TaskId

SHARE = RecordKind[Share]("share", Share)


_TTL_S = 31 * 86_400  # longer than any share lives


class ShareStore:
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
        return await read_one(self._link, SHARE, share_id, found)

    async def of(self, task: TaskId) -> Sequence[Share]:
        """Those that were not revoked, also expired ones that are still there."""
        async with translated():
            found = await self._client.hgetall(self._name(task))
        named = {text(share): data for share, data in found.items()}
        shares = await read_all(self._link, SHARE, named)
        return sorted(shares.values(), key=lambda share: share.expires_at)

    async def remove(self, task: TaskId, *share_ids: str) -> int:
        """How many of them there were."""
        async with translated():
            return int(await self._client.hdel(self._name(task), *share_ids)) if share_ids else 0

    async def url_secret(self) -> bytes:
        """What URLs are signed with; the same for every process. Made when it is first asked for."""
        name = self._link.keys.url_secret()
        async with translated():
            await self._client.set(name, secrets.token_bytes(32), nx=True)
            return await self._client.get(name) or b""

    async def revoke_urls(self, task: TaskId, at: float) -> None:
        """URLs signed up to then open nothing any more."""
        async with translated():
            await self._client.set(self._link.keys.urls_revoked(task), at, ex=_TTL_S)

    async def revoked(self, links: Collection[VideoLink]) -> AbstractSet[VideoLink]:
        """Those of them that open nothing any more, though their time is not over."""
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            for link in links:
                pipe.hexists(self._name(link.task), link.share)
                pipe.get(self._link.keys.urls_revoked(link.task))
            found = iter(await pipe.execute())
        return {
            link
            for link, shared, revoked_at in zip(links, found, found, strict=True)
            if (not shared if link.share else link.issued_at <= float(revoked_at or 0.0))
        }
