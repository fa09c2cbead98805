"""The audit log in Redis: one bounded stream that all gateways write."""

from collections.abc import Sequence
from typing import Any

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all
from turnout.tenants.audit_rules import MAX_AUDIT_ENTRIES, AuditEntry

AUDIT_ENTRY = RecordKind[AuditEntry]("audit", AuditEntry)


_FIELD = b"entry"
_READ_AT_ONCE = 500


class AuditLog:
    """One log for all gateways; the oldest entries go when there are very many."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._name = link.keys.audit()

    async def add(self, entry: AuditEntry) -> None:
        async with translated():
            await self._client.xadd(
                self._name, {_FIELD: AUDIT_ENTRY.dump(entry)}, maxlen=MAX_AUDIT_ENTRIES, approximate=True
            )

    async def newest(
        self, limit: int, before: str | None = None, containing: str = ""
    ) -> Sequence[tuple[str, AuditEntry]]:
        """Entries with their ids, newest first; `before` is an id. All have `containing` somewhere, in any case."""
        found: list[tuple[str, AuditEntry]] = []
        wanted = containing.casefold()
        while len(found) < limit:
            count = limit if not wanted else _READ_AT_ONCE
            async with translated():
                read = await self._client.xrevrange(
                    self._name, f"({before}" if before else "+", "-", count=count
                )
            loaded = await self._entries(read)
            found += [(id_, entry) for id_, entry in loaded if wanted in _text_of(entry)]
            if not wanted or len(read) < count:
                break
            before = read[-1][0].decode()
        return found[:limit]

    async def after(self, cursor: str, limit: int) -> Sequence[tuple[str, AuditEntry]]:
        """The oldest entries after that id, oldest first."""
        async with translated():
            found = await self._client.xrange(self._name, f"({cursor}", "+", count=limit)
        return await self._entries(found)

    async def last_id(self) -> str:
        async with translated():
            found = await self._client.xrevrange(self._name, count=1)
        return found[0][0].decode() if found else "0-0"

    async def _entries(self, found: Sequence[Any]) -> list[tuple[str, AuditEntry]]:
        named = {id_.decode(): fields.get(_FIELD) for id_, fields in found}
        return list((await read_all(self._link, AUDIT_ENTRY, named)).items())


def _text_of(entry: AuditEntry) -> str:
    said = (entry.actor, entry.action, entry.target, entry.address, *entry.detail.values())
    return "\n".join(said).casefold()
