"""API keys in Redis: one hash by key id. Sessions are found here, too: each is a key that lives with its parent."""

from collections.abc import Collection, Mapping

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all, read_one, text
from turnout.tenants.key_rules import Key, is_session, with_parent

KEY = RecordKind[Key]("key", Key)


class KeyStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._name = link.keys.keys()
        self._session_name = link.keys.session

    async def add(self, *keys: Key) -> None:
        """Stores them together; one with a known id takes its place."""
        async with translated():
            await self._link.promise(
                "HSET", self._name, *(one for key in keys for one in (key.id, KEY.dump(key)))
            )

    async def find(self, key_id: str) -> Key | None:
        if is_session(key_id):
            return await self._find_session(key_id)
        async with translated():
            found = await self._client.hget(self._name, key_id)
        return await read_one(self._link, "key", key_id, found, KEY.load)

    async def find_all(self, key_ids: Collection[str]) -> Mapping[str, Key | None]:
        ids = [id_ for id_ in key_ids if not is_session(id_)]
        sessions = {id_: await self._find_session(id_) for id_ in key_ids if is_session(id_)}
        if not ids:
            return sessions
        async with translated():
            found = await self._client.hmget(self._name, ids)
        keys = await read_all(self._link, "key", dict(zip(ids, found, strict=True)), KEY.load)
        return sessions | {id_: keys.get(id_) for id_ in ids}

    async def _find_session(self, session_id: str) -> Key | None:
        async with translated():
            data, parent_id = await self._client.hmget(self._session_name(session_id), ["key", "parent"])
        parent = await self.find(text(parent_id)) if data and parent_id else None
        session = await read_one(self._link, "session", session_id, data, KEY.load)
        return with_parent(session, parent) if session is not None and parent is not None else None

    async def all(self) -> list[Key]:
        async with translated():
            found = await self._client.hgetall(self._name)
        keys = await read_all(self._link, "key", {text(i): data for i, data in found.items()}, KEY.load)
        return sorted(keys.values(), key=lambda k: k.created_at)

    async def revoke(self, key_id: str) -> bool:
        async with translated():
            return bool(await self._link.promise("HDEL", self._name, key_id))
