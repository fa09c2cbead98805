"""Copies of records that could not be read."""

from typing import Protocol


class DeadRecords(Protocol):
    """By kind ("task", "model", …) and the record's own name."""

    async def count(self) -> int: ...

    async def names(self) -> list[tuple[str, str]]:
        """(kind, name) of each, sorted."""
        ...

    async def find(self, kind: str, name: str) -> bytes | None: ...

    async def drop(self, kind: str, name: str) -> bool:
        """False when there was none."""
        ...
