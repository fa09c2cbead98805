"""How signs of life get from ranks on other nodes to their leader: each rank connects once, and writes into the socket what it
would write into a pipe on one machine. The leader asks nobody, so that it costs nothing however many ranks there are."""

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
from dataclasses import dataclass

_GREETING_S = 10.0
_STRANGERS = 64  # connections that have not said their secret, or whose rank is gone


@dataclass(frozen=True, slots=True)
class HeartbeatAddress:
    """Where one rank sends its signs; `secret` says that it is the one."""

    host: str
    port: int
    secret: str

    def connect(self) -> socket.socket:
        connected = socket.create_connection((self.host, self.port), _GREETING_S)
        connected.sendall(f"{self.secret}\n".encode())
        return connected


class Heartbeats:
    """The leader's end, for one formation."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._pipes: dict[str, int] = {}
        self._open = 0

    async def listen(self, host: str) -> None:
        self._server = await asyncio.start_server(self._receive, host, 0)

    def expect(self, pipe: int) -> HeartbeatAddress:
        """Signs that are sent there come out of `pipe`, until `forget`."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        address = HeartbeatAddress(host, port, secrets.token_hex(16))
        self._pipes[address.secret] = pipe
        return address

    def forget(self, address: HeartbeatAddress) -> None:
        self._pipes.pop(address.secret, None)

    def close(self) -> None:
        self._pipes.clear()
        if self._server is not None:
            self._server.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > len(self._pipes) + _STRANGERS:
                return
            async with asyncio.timeout(_GREETING_S):
                said = (await reader.readline()).strip()
            secret = next((s for s in self._pipes if hmac.compare_digest(s.encode(), said)), "")
            while signs := await reader.read(4096):
                pipe = self._pipes.get(secret)
                if pipe is None:
                    return
                with contextlib.suppress(BlockingIOError):  # a full pipe has signs enough
                    os.write(pipe, signs)
        except (
            OSError,
            TimeoutError,
            ValueError,
        ):  # the node is gone, or a stranger; silence tells the supervisor
            return
        finally:
            self._open -= 1
            writer.close()
