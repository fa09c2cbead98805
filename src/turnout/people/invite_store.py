"""Invites in Redis: one hash by id, and how often each was used."""

from turnout.people import people_scripts
from turnout.people.invite_rules import KEPT_S, Invite
from turnout.people.person_rules import Person
from turnout.people.person_store import PERSON
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import number, read_all, read_one, text

INVITE = RecordKind[Invite]("invite", Invite)


class InviteStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._name = link.keys.invites()
        self._uses = link.keys.invite_uses()

    async def add(self, invite: Invite) -> None:
        async with translated():
            await self._link.promise("HSET", self._name, invite.id, INVITE.dump(invite))

    async def find(self, invite_id: str) -> tuple[Invite, int] | None:
        """The invite, and how often it was used."""
        async with translated(), self._client.pipeline() as pipe:
            pipe.hget(self._name, invite_id)
            pipe.hget(self._uses, invite_id)
            data, used = await pipe.execute()
        invite = await read_one(self._link, INVITE, invite_id, data)
        return None if invite is None else (invite, number(used))

    async def all(self, now: float) -> list[tuple[Invite, int]]:
        """Newest first, with how often each was used; those that are long over are dropped."""
        async with translated():
            found = await self._client.hgetall(self._name)
            used = await self._client.hgetall(self._uses)
        named = {text(i): data for i, data in found.items()}
        invites = await read_all(self._link, INVITE, named)
        over = [i for i, invite in invites.items() if invite.expires_at + KEPT_S < now]
        await self.remove(*over)
        counts = {text(i): number(times) for i, times in used.items()}
        kept = [(invite, counts.get(i, 0)) for i, invite in invites.items() if i not in over]
        return sorted(kept, key=lambda one: -one[0].created_at)

    async def remove(self, *invite_ids: str) -> bool:
        if not invite_ids:
            return False
        async with translated(), self._client.pipeline() as pipe:
            pipe.hdel(self._name, *invite_ids)
            pipe.hdel(self._uses, *invite_ids)
            return bool((await pipe.execute())[0])

    async def redeem(self, invite: Invite, person: Person | None, now: float) -> bool:
        """Uses it, and stores who came by it; False when it was used up or revoked."""
        return await people_scripts.redeem_invite(
            self._link,
            invite=invite.id,
            uses=invite.uses,
            id=person.id if person else None,
            doc=PERSON.dump(person) if person else b"",
            at=now,
        )
