"""WebSockets that peers hold open with us: one for each peer, and the newest counts."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from turnout.errors import Unavailable

Peer = TypeVar("Peer", bound=str)


class WebSocketChannel:
    """Starlette's WebSocket as a `Channel`."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        try:
            await self._socket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError) as err:  # RuntimeError: it was closed before
            raise Unavailable("the peer hung up") from err

    async def receive(self) -> bytes:
        try:
            return await self._socket.receive_bytes()
        except (WebSocketDisconnect, RuntimeError, KeyError) as err:  # KeyError: a message of text
            raise Unavailable("the peer hung up") from err


class PeerConnections(Generic[Peer]):
    """A peer that connects again replaces its old connection: it knows best which one is dead."""

    def __init__(self, kind: str) -> None:
        """`kind` is what tasks are called."""
        self._kind = kind
        self._held: dict[Peer, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._held

    async def hold(self, peer: Peer, serve: Coroutine[Any, Any, None]) -> None:
        """Runs `serve` until it ends, the peer connects again, or this is cancelled."""
        old = self._held.get(peer)
        mine = self._held[peer] = asyncio.create_task(serve, name=f"{self._kind} {peer}")
        if old is not None:
            old.cancel()
        try:
            await asyncio.wait({mine})
        finally:
            mine.cancel()
            await asyncio.gather(mine, return_exceptions=True)
            if self._held.get(peer) is mine:
                del self._held[peer]
