"""The audit log in Redis: one bounded stream that all gateways write."""

from collections.abc import Sequence

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.records import read_all
from turnout.domain.audit import MAX_AUDIT_ENTRIES, AuditEntry
from turnout.schemas.task_records import AUDIT_ENTRY

_FIELD = b"entry"


class RedisAuditLog:
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
        async with translated():
            found = await self._client.xrevrange(
                self._name, f"({before}" if before else "+", "-", count=limit
            )
        named = {id_.decode(): fields.get(_FIELD) for id_, fields in found}
        return list((await read_all(self._link, "audit", named, AUDIT_ENTRY.load)).items())
