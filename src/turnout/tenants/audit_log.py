"""The audit log in Redis: one bounded stream that all gateways write."""

from collections.abc import Sequence

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_all
from turnout.tenants.audit_rules import MAX_AUDIT_ENTRIES, AuditEntry

AUDIT_ENTRY = RecordKind[AuditEntry]("audit", AuditEntry)


_FIELD = b"entry"


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

    async def newest(self, limit: int, before: str | None = None) -> Sequence[tuple[str, AuditEntry]]:
        """Entries with their ids, newest first; `before` is an id."""
        async with translated():
            found = await self._client.xrevrange(
                self._name, f"({before}" if before else "+", "-", count=limit
            )
        named = {id_.decode(): fields.get(_FIELD) for id_, fields in found}
        return list((await read_all(self._link, "audit", named, AUDIT_ENTRY.load)).items())
