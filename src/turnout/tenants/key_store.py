"""API keys in Redis: one hash by key id. Sessions, people and their keys are found here, too: each is a key, or counts as one, and
lives with its parent."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from turnout.people.person_rules import as_key
from turnout.people.person_store import PersonStore
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import read_all, text
from turnout.tenants.key_records import KEY
from turnout.tenants.key_rules import Key, is_session, person_of, with_parent


class KeyStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._name = link.keys.keys()
        self._bootstrapped = link.keys.bootstrapped()
        self._session_name = link.keys.session
        self._people = PersonStore(link)

    async def add(self, *keys: Key) -> None:
        """Stores them together; one with a known id takes its place."""
        async with translated():
            await self._link.promise(
                "HSET", self._name, *(one for key in keys for one in (key.id, KEY.dump(key)))
            )

    async def bootstrapped(self) -> frozenset[str]:
        """Ids of the keys that the bootstrap has added, also of those that were revoked since."""
        async with translated():
            return frozenset(text(id_) for id_ in await self._client.smembers(self._bootstrapped))

    async def note_bootstrapped(self, *key_ids: str) -> None:
        async with translated():
            await self._link.promise("SADD", self._bootstrapped, *key_ids)

    async def find(self, key_id: str) -> Key | None:
        return (await self.find_all([key_id]))[key_id]

    async def find_all(self, key_ids: Collection[str]) -> Mapping[str, Key | None]:
        """Each as it is now, with its parent; None for what is gone, or whose parent is."""
        sessions = await self._sessions([key_id for key_id in key_ids if is_session(key_id)])
        alone = {key_id for key_id in key_ids if not is_session(key_id)}
        found = await self._alone(alone | {session.parent or "" for session in sessions.values()})
        for key_id in key_ids:
            session = sessions.get(key_id)
            if session is not None:
                parent = found[session.parent or ""]
                found[key_id] = None if parent is None else with_parent(session, parent)
        return {key_id: found.get(key_id) for key_id in key_ids}

    async def _sessions(self, ids: Collection[str]) -> Mapping[str, Key]:
        """Those that are there, each with the id of its parent."""
        if not ids:
            return {}
        async with translated():
            pipe = self._client.pipeline(transaction=False)
            for session_id in ids:
                pipe.hmget(self._session_name(session_id), "key", "parent")
            found = dict(zip(ids, await pipe.execute(), strict=True))
        named = {i: data for i, (data, _) in found.items()}
        records = await read_all(self._link, KEY, named, called="session")
        # The parent stands beside the record, too: version 0.3.0 wrote it only there.
        parents = {i: text(parent) for i, (_, parent) in found.items() if parent}
        return {i: replace(key, parent=parents[i]) for i, key in records.items() if i in parents}

    async def _alone(self, ids: Collection[str]) -> dict[str, Key | None]:
        """All but sessions."""
        keys = [key_id for key_id in ids if person_of(key_id) is None]
        people = [key_id for key_id in ids if person_of(key_id) is not None]
        found: dict[str, Key | None] = dict(await self._people.rights(people)) if people else {}
        if keys:
            async with translated():
                data = await self._client.hmget(self._name, keys)
            read = await read_all(self._link, KEY, dict(zip(keys, data, strict=True)))
            found |= {key_id: read.get(key_id) for key_id in keys}
        return found

    async def of_person(self, login: Key, issuer: str) -> Key:
        """An issuer's token as the person is now whom it names; as it is, if she never came in by the page."""
        person = await self._people.by_subject(issuer, login.name)
        return login if person is None else with_parent(login, as_key(person))

    async def all(self) -> list[Key]:
        """Those that stand alone."""
        async with translated():
            found = await self._client.hgetall(self._name)
        keys = await read_all(self._link, KEY, {text(i): data for i, data in found.items()})
        return sorted(keys.values(), key=lambda k: k.created_at)

    async def revoke(self, key_id: str) -> bool:
        if person_of(key_id) is not None:
            return await self._people.revoke_key(key_id)
        async with translated():
            return bool(await self._link.promise("HDEL", self._name, key_id))
