"""The scripts of people and invites, each with its one call site."""

from collections.abc import Sequence

from turnout.store.connection import RedisConnection
from turnout.store.records import text
from turnout.store.scripts import Script
from turnout.tasks.task_rules import PersonId

_add_person = Script("people/add_person", "people/persons")


async def add_person(
    link: RedisConnection, *, id: PersonId, doc: bytes, at: float, subject: str = ""
) -> PersonId:
    """Who is stored under the subject: this one, or another who was faster."""
    return PersonId(text(await _add_person.promise(link, id=id, doc=doc, at=at, subject=subject)))


_add_guest = Script("people/add_guest", "tenants/allowance")


class NoRoom:
    """There are as many guests as there may be."""


async def add_guest(
    link: RedisConnection,
    *,
    id: PersonId,
    doc: bytes,
    at: float,
    ends_at: float,
    most: int,
    day: str,
    by_network: tuple[str, int],
) -> NoRoom | int | None:
    """`by_network` are the account of where she came from, and how many may come from there in a day: that is the answer when so
    many came. None if she is stored."""
    answer = int(
        await _add_guest.promise(link, by_network, id=id, doc=doc, at=at, ends_at=ends_at, most=most, day=day)
    )
    return None if answer == -1 else NoRoom() if answer == -2 else answer


_change_person = Script("people/change_person")


async def change_person(link: RedisConnection, *, id: PersonId, before: bytes, after: bytes) -> bool:
    """False when she is not stored as `before` any more."""
    return bool(await _change_person.promise(link, id=id, before=before, after=after))


_see_person = Script("people/see_person")


async def see_person(link: RedisConnection, *, id: PersonId, at: int) -> None:
    """Notes when she was there, if she still is."""
    await _see_person.run(link, id=id, at=at)


_remove_person = Script("people/remove_person")


async def remove_person(link: RedisConnection, *, id: PersonId, subject: str, days: Sequence[str]) -> bool:
    """False when she was gone. `days`: of which it is kept what she asked for."""
    return bool(await _remove_person.promise(link, days, id=id, subject=subject))


_add_person_key = Script("people/add_person_key")


async def add_person_key(link: RedisConnection, *, id: PersonId, key: str, doc: bytes, most: int) -> bool:
    """False when she is gone, or has `most` keys."""
    return bool(await _add_person_key.promise(link, id=id, key=key, doc=doc, most=most))


_redeem_invite = Script("people/redeem_invite", "people/persons")


async def redeem_invite(
    link: RedisConnection, *, invite: str, uses: int, id: PersonId | None, doc: bytes, at: float
) -> bool:
    """Uses the invite, and stores who came by it; without an `id` nobody is stored. False when it is used up or revoked."""
    return bool(await _redeem_invite.promise(link, invite=invite, uses=uses, id=id or "", doc=doc, at=at))
