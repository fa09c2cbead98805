"""Sockets that have sent much at once take turns: one piece of one of them in each round of the event loop."""

import asyncio
from collections import deque
from typing import Protocol


class InPieces(Protocol):
    def handle_piece(self) -> bool:
        """Whether there is more."""
        ...


class PieceQueue:
    def __init__(self) -> None:
        self._waiting: deque[InPieces] = deque()

    def add(self, loop: asyncio.AbstractEventLoop, connection: InPieces) -> None:
        """It must not be in the queue."""
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        connection = self._waiting[0]
        more = False
        try:
            more = connection.handle_piece()
        finally:
            self._waiting.popleft()
            if more:
                self._waiting.append(connection)
            if self._waiting:
                loop.call_soon(self._next, loop)
