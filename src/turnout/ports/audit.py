"""The audit log."""

from collections.abc import Sequence
from typing import Protocol

from turnout.domain.audit import AuditEntry


class AuditLog(Protocol):
    """One log for all gateways; the oldest entries go when there are very many."""

    async def add(self, entry: AuditEntry) -> None: ...

    async def newest(self, limit: int, before: str | None = None) -> Sequence[tuple[str, AuditEntry]]:
        """Entries with their ids, newest first; `before` is an id."""
        ...
