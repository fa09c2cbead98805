"""Sessions and login codes in Redis."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from turnout.store.connection import RedisConnection, translated
from turnout.store.records import read_all, text
from turnout.tenants.key_records import KEY
from turnout.tenants.key_rules import Key


@dataclass(frozen=True, slots=True)
class OpenedBy:
    """What the browser said of itself, and where it was."""

    agent: str
    address: str


@dataclass(frozen=True, slots=True)
class OpenSession:
    session: Key
    by: OpenedBy


class SessionStore:
    """A session is found in the `KeyStore` by its id, like a key, for as long as its parent is there: the key that opened
    it, or the person whose it is."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._names = link.keys

    async def put_code(self, digest: str, parent: str, ttl_s: int) -> None:
        async with translated():
            await self._client.set(self._names.login_code(digest), parent, ex=ttl_s)

    async def take_code(self, digest: str) -> str | None:
        """The id of whom it logs in; a code works once, whoever asks."""
        async with translated():
            found = await self._client.getdel(self._names.login_code(digest))
        return text(found) if found else None

    async def open(self, session: Key, parent: str, ttl_s: int, by: OpenedBy, root: str) -> None:
        """`root` is who will find it among her sessions (`Caller.root`)."""
        name, index = self._names.session(session.id), self._names.sessions_of(root)
        about = {"key": KEY.dump(session), "parent": parent, "agent": by.agent, "address": by.address}
        async with translated(), self._client.pipeline() as pipe:
            pipe.hset(name, mapping=about)
            pipe.expire(name, ttl_s)
            pipe.zremrangebyscore(index, "-inf", session.created_at)
            pipe.zadd(index, {session.id: session.created_at + ttl_s})
            pipe.expire(index, ttl_s, gt=True)
            pipe.expire(index, ttl_s, nx=True)
            await pipe.execute()

    async def of(self, root: str) -> Sequence[OpenSession]:
        """Those that are open, newest first."""
        async with translated():
            ids = await self._client.zrange(self._names.sessions_of(root), 0, -1)
            pipe = self._client.pipeline(transaction=False)
            for session_id in ids:
                pipe.hmget(self._names.session(text(session_id)), "key", "agent", "address")
            found = {text(i): three for i, three in zip(ids, await pipe.execute(), strict=True)}
        named = {i: data for i, (data, _, _) in found.items()}
        sessions = await read_all(self._link, KEY, named, called="session")
        opened = [
            OpenSession(session, OpenedBy(text(found[i][1] or b""), text(found[i][2] or b"")))
            for i, session in sessions.items()
        ]
        return sorted(opened, key=lambda one: -one.session.created_at)

    async def end(self, root: str, session_ids: Collection[str]) -> None:
        if session_ids:
            async with translated(), self._client.pipeline() as pipe:
                pipe.delete(*(self._names.session(session_id) for session_id in session_ids))
                pipe.zrem(self._names.sessions_of(root), *session_ids)
                await pipe.execute()
