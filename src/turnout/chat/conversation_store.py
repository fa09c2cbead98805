"""Conversations: the list of each owner's in Redis, what was said in the object store. An object is written anew with each change, so
that whoever reads sees a whole one."""

import asyncio
import gzip
from dataclasses import replace
from secrets import token_hex

from turnout.chat.chat_scripts import change_conversation, remove_conversation
from turnout.chat.conversation_rules import (
    ConversationRoom,
    KeptConversation,
    changed_meanwhile,
    check_kept,
    folded,
    no_such_conversation,
    too_large,
    too_many,
)
from turnout.errors import Conflict, NotFound, TooLarge, Unauthorized
from turnout.store.connection import RedisConnection, translated
from turnout.store.object_store import Blobs
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all, read_one, text
from turnout.tenants.caller import right_ended

CONVERSATION = RecordKind[KeptConversation]("conversation", KeptConversation)
_AT_ONCE = 16
_SEARCH_S = 5.0


class ConversationStore:
    def __init__(self, link: RedisConnection, blobs: Blobs) -> None:
        self._link = link
        self._blobs = blobs
        self._name = link.keys.conversations

    async def of(self, owner: str) -> list[KeptConversation]:
        """Newest first."""
        async with translated():
            found = await self._link.client.hgetall(self._name(owner))
        named = {text(one): data for one, data in found.items()}
        kept = await read_all(self._link, CONVERSATION, named)
        return sorted(kept.values(), key=lambda one: -one.updated_at)

    async def find(self, owner: str, conversation_id: str) -> KeptConversation:
        """Raises NotFound."""
        async with translated():
            found = await self._link.client.hget(self._name(owner), conversation_id)
        kept = await read_one(self._link, CONVERSATION, conversation_id, found)
        if kept is None:
            raise no_such_conversation(conversation_id)
        return kept

    async def read(self, owner: str, kept: KeptConversation) -> bytes:
        """What was said, as it was given. Raises NotFound."""
        try:
            packed = await self._blobs.get(_said(owner, kept))
        except NotFound as err:
            raise no_such_conversation(kept.id) from err
        return await asyncio.to_thread(gzip.decompress, packed)

    async def keep(
        self, owner: str, now: KeptConversation, said: bytes, words: str, room: ConversationRoom
    ) -> KeptConversation:
        """Writes one that follows on the revision before; `words` are what is searched. Raises Conflict and TooLarge."""
        kept = {one.id: one for one in await self.of(owner)}
        before = kept.get(now.id)
        packed, searched = await asyncio.to_thread(gzip.compress, said, 6), folded(words).encode()
        now = replace(
            now,
            object=token_hex(8),
            bytes=len(packed) + len(searched),
            created_at=before.created_at if before else now.created_at,
        )
        check_kept(kept.values(), now, room)
        await self._blobs.put(_said(owner, now), packed, "application/gzip")
        await self._blobs.put(_words(owner, now), searched, "text/plain")
        try:
            await self._change(owner, now, room)
        except (
            Conflict,
            TooLarge,
            Unauthorized,
        ):  # after any other error it may have been written all the same
            await self._blobs.delete([_said(owner, now), _words(owner, now)])
            raise
        if before is not None:
            await self._blobs.delete([_said(owner, before), _words(owner, before)])
        return now

    async def rename(self, owner: str, kept: KeptConversation, title: str) -> KeptConversation:
        """Raises Conflict."""
        now = replace(kept, title=title, revision=kept.revision + 1)
        await self._change(owner, now, None)
        return now

    async def remove(self, owner: str, conversation_id: str) -> None:
        """As it is when it goes: what is written at that moment goes with it, or is refused. Raises NotFound."""
        found = await remove_conversation(self._link, owner=owner, id=conversation_id)
        kept = await read_one(self._link, CONVERSATION, conversation_id, found)
        if kept is None:
            raise no_such_conversation(conversation_id)
        await self._blobs.delete([_said(owner, kept), _words(owner, kept)])

    async def erase(self, owner: str) -> None:
        """All of an owner's, also what a write left that never ended. May be repeated."""
        async with translated():
            await self._link.client.delete(self._name(owner))
        await self._blobs.delete([blob.key async for blob in self._blobs.list(_of(owner))])

    async def search(self, owner: str, query: str) -> list[KeptConversation]:
        """Those with the words in their title or in what was said; of those that cannot be read in a few seconds, the title."""
        wanted, kept = folded(query), await self.of(owner)
        found = {one.id for one in kept if wanted in folded(one.title)}
        few = asyncio.Semaphore(_AT_ONCE)

        async def look(one: KeptConversation) -> None:
            async with few:
                try:
                    said = await self._blobs.get(_words(owner, one))
                except NotFound:
                    return
            if wanted in said.decode(errors="replace"):
                found.add(one.id)

        try:
            async with asyncio.timeout(_SEARCH_S), asyncio.TaskGroup() as group:
                for one in kept:
                    if one.id not in found:
                        group.create_task(look(one), name=f"search {one.id}")
        except TimeoutError:
            pass
        return [one for one in kept if one.id in found]

    async def _change(self, owner: str, now: KeptConversation, room: ConversationRoom | None) -> None:
        """Without a `room` it is as large as it was."""
        done = await change_conversation(
            self._link,
            owner=owner,
            id=now.id,
            revision=now.revision - 1,
            doc=CONVERSATION.dump(now),
            most=room.most if room else 0,
            bytes=now.bytes if room else 0,
            together=room.together_bytes if room else 0,
        )
        if room is not None and done == -1:
            raise too_many(room.most)
        if done == -2:
            raise too_large()
        if done == -3:
            raise right_ended()
        if not done:
            raise changed_meanwhile()


def _of(owner: str) -> str:
    return f"conversations/{owner}/"


def _said(owner: str, one: KeptConversation) -> str:
    return f"{_of(owner)}{one.id}/{one.object}.json.gz"


def _words(owner: str, one: KeptConversation) -> str:
    return f"{_of(owner)}{one.id}/{one.object}.txt"
