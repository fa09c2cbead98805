"""People in Redis: a hash for each, with her keys in it. So one look tells a key and whether its person is still there."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from turnout.errors import Limited, Unavailable
from turnout.people import people_scripts
from turnout.people.person_rules import Person, as_key, subject_digest
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import number, read_all, read_one, text
from turnout.tasks.task_rules import PersonId
from turnout.tenants.allowance_rules import DAY_S, over_allowance
from turnout.tenants.key_records import KEY
from turnout.tenants.key_rules import Key, person_of, with_parent
from turnout.tenants.usage_rules import day_of

PERSON = RecordKind[Person]("person", Person)
MAX_KEYS = 50
_DOC, _SEEN, _KEY = b"doc", b"seen", "key:"
_MAX_RACES = 20
_GUESTS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class KnownPerson:
    """`seen_at` is when she last opened the page, to the second."""

    person: Person
    seen_at: int


class PersonStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._name = link.keys.person

    async def add(self, person: Person) -> Person:
        """Whoever is there under her issuer's name for her: she, or somebody who was faster."""
        subject = subject_digest(person.issuer, person.subject) if person.subject else ""
        there = await people_scripts.add_person(
            self._link, id=person.id, doc=PERSON.dump(person), at=person.created_at, subject=subject
        )
        found = person if there == person.id else await self.find(there)
        if found is None:
            raise Unavailable("The person is just being removed; ask again.", retry_after_s=1.0)
        return found

    async def add_guest(self, guest: Person, most: int, by_network: tuple[str, int]) -> None:
        """Raises Limited when there are `most` guests, or so many came from her network today."""
        refused = await people_scripts.add_guest(
            self._link,
            id=guest.id,
            doc=PERSON.dump(guest),
            at=guest.created_at,
            ends_at=guest.expires_at or guest.created_at,
            most=most,
            day=day_of(guest.created_at),
            by_network=by_network,
        )
        if isinstance(refused, people_scripts.NoRoom):
            raise Limited("There are too many guests now.", code="too_many_guests", retry_after_s=600)
        if refused is not None:
            raise over_allowance("guests", refused, guest.created_at)

    async def guests(self) -> int:
        async with translated():
            return await self._client.zcard(self._link.keys.guests())

    async def guests_over(self, now: float) -> list[PersonId]:
        """Some of the guests whose time is over."""
        async with translated():
            found = await self._client.zrangebyscore(
                self._link.keys.guests(), "-inf", now, start=0, num=_GUESTS_AT_ONCE
            )
        return [PersonId(text(person_id)) for person_id in found]

    async def find(self, person_id: PersonId) -> Person | None:
        async with translated():
            found = await self._client.hget(self._name(person_id), _DOC)
        return await read_one(self._link, PERSON, person_id, found)

    async def by_subject(self, issuer: str, subject: str) -> Person | None:
        async with translated():
            found = await self._client.get(self._link.keys.person_by(subject_digest(issuer, subject)))
        return await self.find(PersonId(text(found))) if found else None

    async def rights(self, ids: Collection[str]) -> Mapping[str, Key | None]:
        """What people, and keys of people, may do now; None for those that are gone."""
        asked = {key_id: person for key_id in ids if (person := person_of(key_id)) is not None}
        async with translated():
            pipe = self._client.pipeline(transaction=False)
            for key_id, person in asked.items():
                pipe.hmget(self._name(person), _DOC, f"{_KEY}{key_id}")
            found = dict(zip(asked, await pipe.execute(), strict=True))
        people = await read_all(self._link, PERSON, {i: doc for i, (doc, _) in found.items()})
        keys = await read_all(self._link, KEY, {i: data for i, (_, data) in found.items()})
        return {key_id: _right(key_id, people.get(key_id), keys.get(key_id)) for key_id in asked}

    async def page(self, before: PersonId | None, limit: int) -> list[KnownPerson]:
        """Newest first; `before` is the last one of the page before."""
        async with translated():
            start = 0
            if before is not None:
                rank = await self._client.zrevrank(self._link.keys.people(), before)
                start = 0 if rank is None else rank + 1
            ids = await self._client.zrange(self._link.keys.people(), start, start + limit - 1, desc=True)
            pipe = self._client.pipeline(transaction=False)
            for person_id in ids:
                pipe.hmget(self._name(text(person_id)), _DOC, _SEEN)
            found = {text(i): two for i, two in zip(ids, await pipe.execute(), strict=True)}
        people = await read_all(self._link, PERSON, {i: doc for i, (doc, _) in found.items()})
        return [KnownPerson(person, _seen(found[i][1])) for i, person in people.items()]

    async def known(self, person_id: PersonId) -> KnownPerson | None:
        async with translated():
            doc, seen = await self._client.hmget(self._name(person_id), _DOC, _SEEN)
        person = await read_one(self._link, PERSON, person_id, doc)
        return None if person is None else KnownPerson(person, _seen(seen))

    async def change(self, person_id: PersonId, change: Callable[[Person], Person]) -> Person | None:
        """What she is now; None if there is no such person."""
        for _ in range(_MAX_RACES):
            async with translated():
                data = await self._client.hget(self._name(person_id), _DOC)
            person = await read_one(self._link, PERSON, person_id, data)
            if person is None or data is None:
                return None
            after = change(person)
            # Compared as it is stored: another version may have written fields that this one does not know.
            if after == person or await people_scripts.change_person(
                self._link, id=person_id, before=data, after=PERSON.dump(after)
            ):
                return after
        raise Unavailable(f"{person_id} is being changed by too many at once.", retry_after_s=1.0)

    async def remove(self, person: Person, now: float) -> bool:
        """With her keys and sessions; False if she was gone."""
        subject = subject_digest(person.issuer, person.subject) if person.subject else ""
        return await people_scripts.remove_person(
            self._link, id=person.id, subject=subject, days=_kept_days(now)
        )

    async def drop_guest(self, person_id: PersonId, now: float) -> None:
        """One whose record is gone, or cannot be read."""
        await people_scripts.remove_person(self._link, id=person_id, subject="", days=_kept_days(now))

    async def note_seen(self, person_id: PersonId, at: float) -> None:
        await people_scripts.see_person(self._link, id=person_id, at=int(at))

    async def add_key(self, key: Key) -> bool:
        """False if its person is gone, or has `MAX_KEYS` keys."""
        person = person_of(key.id)
        assert person is not None
        return await people_scripts.add_person_key(
            self._link, id=person, key=key.id, doc=KEY.dump(key), most=MAX_KEYS
        )

    async def keys_of(self, person: Person) -> list[Key]:
        async with translated():
            found = await self._client.hgetall(self._name(person.id))
        named = {text(i): data for i, data in found.items() if text(i).startswith(_KEY)}
        keys = await read_all(self._link, KEY, named)
        right = as_key(person)
        return sorted((with_parent(key, right) for key in keys.values()), key=lambda key: key.created_at)

    async def revoke_key(self, key_id: str) -> bool:
        person = person_of(key_id)
        async with translated():
            return person is not None and bool(
                await self._link.promise("HDEL", self._name(person), f"{_KEY}{key_id}")
            )


def _right(key_id: str, person: Person | None, key: Key | None) -> Key | None:
    if person is None or key_id == person.id:
        return None if person is None else as_key(person)
    return None if key is None else with_parent(key, as_key(person))


def _kept_days(now: float) -> tuple[str, str]:
    return day_of(now), day_of(now - DAY_S)


def _seen(data: bytes | None) -> int:
    return number((data or b"0").partition(b".")[0])
