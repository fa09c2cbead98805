"""Conversations that peers hold open with us: one for each peer, and the newest counts."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

Peer = TypeVar("Peer", bound=str)


class Conversations(Generic[Peer]):
    """A peer that comes again replaces its old conversation: it knows best which one is dead."""

    def __init__(self, kind: str) -> None:
        """`kind` is what tasks are called."""
        self._kind = kind
        self._held: dict[Peer, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._held

    async def hold(self, peer: Peer, conversation: Coroutine[Any, Any, None]) -> None:
        """Returns when it is over, or replaced; it is over when this is cancelled."""
        old = self._held.get(peer)
        mine = self._held[peer] = asyncio.create_task(conversation, name=f"{self._kind} {peer}")
        if old is not None:
            old.cancel()
        try:
            await asyncio.wait({mine})
        finally:
            mine.cancel()
            await asyncio.gather(mine, return_exceptions=True)
            if self._held.get(peer) is mine:
                del self._held[peer]
