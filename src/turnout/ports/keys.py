"""API keys."""

from collections.abc import Collection, Mapping
from typing import Protocol

from turnout.domain.keys import Key


class KeyStore(Protocol):
    async def add(self, *keys: Key) -> None:
        """Stores them together; one with a known id takes its place."""
        ...

    async def find(self, key_id: str) -> Key | None: ...
    async def find_all(self, key_ids: Collection[str]) -> Mapping[str, Key | None]: ...
    async def all(self) -> list[Key]: ...
    async def revoke(self, key_id: str) -> bool: ...
