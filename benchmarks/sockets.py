"""Many watching clients in one process at little cost: messages are kept as they come and read afterwards.

And the least that a server could do for them: the same bytes to everyone who is connected.
"""

import asyncio
import base64
import os
import time
from typing import cast

_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_HANDSHAKE_S = 30.0


class Socket(asyncio.Protocol):
    """`frames` are (when it came, its text), in order."""

    def __init__(self, path: str, port: int, api_key: str) -> None:
        nonce = base64.b64encode(os.urandom(16)).decode()
        self._hello = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\nAuthorization: Bearer {api_key}\r\n\r\n"
        ).encode()
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.frames: list[tuple[float, bytes]] = []
        self.lost = False

    @classmethod
    async def open(cls, path: str, port: int, api_key: str) -> "Socket":
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(lambda: cls(path, port, api_key), "127.0.0.1", port)
        await asyncio.wait_for(socket._opened, _HANDSHAKE_S)
        return socket

    def close(self) -> None:
        assert self._transport
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._hello)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self._opened.done():
            self._opened.set_exception(exc or ConnectionError("the handshake was refused"))

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self._buffer = self._buffer + data if self._buffer else data
        if not self._opened.done() and not self._shake_hands():
            return
        while (frame := _first_frame(self._buffer)) is not None:
            kind, payload, length = frame
            self._buffer = self._buffer[length:]
            if kind == _TEXT:
                self.frames.append((now, payload))
            elif kind == _PING:
                assert self._transport
                self._transport.write(bytes((0x80 | _PONG, 0x80 | len(payload), 0, 0, 0, 0)) + payload)
            elif kind == _CLOSE:
                self.lost = True

    def _shake_hands(self) -> bool:
        head, complete, rest = self._buffer.partition(b"\r\n\r\n")
        if not complete:
            return False
        if not head.startswith(b"HTTP/1.1 101"):
            self._opened.set_exception(ConnectionError(self._buffer[:300].decode(errors="replace")))
            return False
        self._buffer = rest
        self._opened.set_result(None)
        return True


class EventStream(Socket):
    """The same over server-sent events; `frames` have the JSON of each."""

    def __init__(self, path: str, port: int, api_key: str) -> None:
        super().__init__(path, port, api_key)
        self._hello = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {api_key}\r\n\r\n"
        ).encode()

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self._buffer += data
        if not self._opened.done():
            if b"\r\n\r\n" not in self._buffer:
                return
            if self._buffer.startswith(b"HTTP/1.1 200"):
                self._opened.set_result(None)
            else:
                self._opened.set_exception(ConnectionError(self._buffer[:300].decode(errors="replace")))
                return
        *events, self._buffer = self._buffer.split(b"\n\n")
        self.frames += [(now, event.partition(b"data: ")[2]) for event in events if b"data: " in event]


def _first_frame(buffer: bytes) -> tuple[int, bytes, int] | None:
    """(opcode, payload, length with header) of a server's frame, which is whole and not masked; None if cut short."""
    if len(buffer) < 2:
        return None
    size, start = buffer[1], 2
    if size == 126:
        size, start = int.from_bytes(buffer[2:4], "big"), 4
    elif size == 127:
        size, start = int.from_bytes(buffer[2:10], "big"), 10
    if len(buffer) < start + size:
        return None
    return buffer[0] & 0xF, buffer[start : start + size], start + size


class Relay:
    """Everyone who connects gets every text from then on."""

    def __init__(self) -> None:
        self._clients: set[asyncio.Transport] = set()

    def connection(self) -> asyncio.Protocol:
        return _Client(self._clients)

    def send(self, text: bytes) -> None:
        size = len(text)
        length = bytes((size,)) if size < 126 else bytes((126,)) + size.to_bytes(2, "big")
        frame = bytes((0x80 | _TEXT,)) + length + text
        for client in self._clients:
            client.write(frame)


class _Client(asyncio.Protocol):
    def __init__(self, clients: set[asyncio.Transport]) -> None:
        self._clients = clients
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport
        if self._transport not in self._clients:
            self._transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
            self._clients.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport:
            self._clients.discard(self._transport)
