"""Sessions and login codes in Redis."""

from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text
from turnout.tenants.key_rules import Key
from turnout.tenants.key_store import KEY


class SessionStore:
    """A session is found in the `KeyStore` by its id, like a key, for as long as the key that opened it is there."""

    def __init__(self, link: RedisConnection) -> None:
        self._client = link.client
        self._names = link.keys

    async def put_code(self, digest: str, key_id: str, ttl_s: int) -> None:
        async with translated():
            await self._client.set(self._names.login_code(digest), key_id, ex=ttl_s)

    async def take_code(self, digest: str) -> str | None:
        """The id of the key that it stands for; a code works once, whoever asks."""
        async with translated():
            found = await self._client.getdel(self._names.login_code(digest))
        return text(found) if found else None

    async def open(self, session: Key, parent: str, ttl_s: int) -> None:
        name = self._names.session(session.id)
        async with translated(), self._client.pipeline() as pipe:
            pipe.hset(name, mapping={"key": KEY.dump(session), "parent": parent})
            pipe.expire(name, ttl_s)
            await pipe.execute()

    async def end(self, session_id: str) -> None:
        async with translated():
            await self._client.delete(self._names.session(session_id))
