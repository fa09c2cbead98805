"""Rights that one process holds at a time."""

from typing import Protocol


class Mutex(Protocol):
    """A named right that one process holds at a time and that lapses by itself."""

    async def hold(self, name: str, owner: str, ttl_s: float) -> bool:
        """Takes or renews; False when another holds it."""
        ...

    async def drop(self, name: str, owner: str) -> None: ...
    async def holder(self, name: str) -> str | None: ...
