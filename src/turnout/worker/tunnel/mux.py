"""Many byte streams over one channel of messages. A stream that nobody reads blocks no other.

Each message is a kind (1 byte), a stream's number (4 bytes) and a content:

    OPEN    a new stream; only the gateway opens streams
    DATA    bytes, never more than the other side has granted
    CREDIT  4 bytes: so many more bytes may be sent, because as many have been passed on
    END     no more will come, and nothing more is read; what was sent is to be delivered
    RESET   the same, and nobody wants what was sent

So at most a window is in flight for each stream and direction, and one slow reader never fills memory.
"""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import Protocol

from turnout.errors import Unavailable


class Channel(Protocol):
    """Messages both ways, in order. Both raise Unavailable once it is closed."""

    async def send(self, message: bytes) -> None: ...
    async def receive(self) -> bytes: ...


WINDOW_BYTES = 256 * 1024
PIECE_BYTES = 32 * 1024
MAX_MESSAGE_BYTES = PIECE_BYTES + 5
MAX_STREAMS = 512

_HEAD = struct.Struct("!BI")
_COUNT = struct.Struct("!I")


class Kind(IntEnum):
    OPEN = 1
    DATA = 2
    CREDIT = 3
    END = 4
    RESET = 5


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Stream:
    """One connection, carried. Data may come before the connection behind it is there."""

    def __init__(self, mux: "Mux", number: int) -> None:
        self._mux = mux
        self._number = number
        self._credit = WINDOW_BYTES
        self._more_credit = asyncio.Event()
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue()  # b"" says that no more will come
        self._uncredited = 0  # bytes that came and were not granted again: never more than a window
        self._dropped = asyncio.Event()

    def arrived(self, data: bytes) -> None:
        self._uncredited += len(data)
        if self._uncredited > WINDOW_BYTES:
            raise Unavailable("the other end sent more than it was granted")
        self._arrived.put_nowait(data)

    def credit_received(self, count: int) -> None:
        self._credit = min(self._credit + count, WINDOW_BYTES)
        self._more_credit.set()

    def ended(self) -> None:
        self._arrived.put_nowait(b"")

    def drop(self) -> None:
        self._dropped.set()

    async def run(self, connection: Connection) -> None:
        """Returns when either side has closed and what it sent is passed on, or at once when it is dropped."""
        reader, writer = connection
        pumps = {
            asyncio.create_task(self._pump_out(reader), name=f"tunnel out {self._number}"),
            asyncio.create_task(self._pump_in(writer), name=f"tunnel in {self._number}"),
            asyncio.create_task(self._dropped.wait(), name=f"tunnel drop {self._number}"),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            if self._dropped.is_set():
                writer.transport.abort()
            writer.close()

    async def _pump_out(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(min(PIECE_BYTES, await self._allowance())):
                self._credit -= len(data)
                self._mux.send(Kind.DATA, self._number, data)

    async def _allowance(self) -> int:
        while self._credit <= 0:
            self._more_credit.clear()
            await self._more_credit.wait()
        return self._credit

    async def _pump_in(self, writer: asyncio.StreamWriter) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := await self._arrived.get():
                writer.write(data)
                await writer.drain()
                passed += len(data)
                if passed >= WINDOW_BYTES // 4:  # seldom: a stream of tokens is many small pieces
                    self._mux.send(Kind.CREDIT, self._number, _COUNT.pack(passed))
                    self._uncredited -= passed
                    passed = 0


class Mux:
    """One end of a channel. `run` carries streams until the channel closes; then all of them are cut.

    `accept` makes the connection behind a stream that the other side opens; an end without it opens streams itself.
    `closing_kind` is sent when a connection closed here: END if it may have closed after its last byte, RESET if closing
    means that nobody reads any more.
    """

    def __init__(
        self, channel: Channel, closing_kind: Kind, accept: Callable[[], Awaitable[Connection]] | None = None
    ) -> None:
        self._channel = channel
        self._closing_kind = closing_kind
        self._accept = accept
        self._streams: dict[int, _Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # Bounded by the windows: data is put here only as far as the other side has granted it.
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._last = 0

    async def run(self) -> None:
        """Raises Unavailable when the channel is closed or the other side breaks the rules."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write(), name="tunnel writer")
                group.create_task(self._read(), name="tunnel reader")
        except BaseExceptionGroup as group:
            # Not except*: Python 3.11.2 wraps what is raised there in a group.
            closed, others = group.split(Unavailable)
            if closed is None or others is not None:
                raise
            raise Unavailable(f"the tunnel closed: {closed.exceptions[0]}") from None
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def carry(self, connection: Connection) -> None:
        """Opens a stream for a connection; returns when it is over."""
        if len(self._streams) >= MAX_STREAMS:
            connection[1].transport.abort()
            return
        self._last += 1
        stream = self._streams[self._last] = _Stream(self, self._last)
        self.send(Kind.OPEN, self._last)
        await self._run_stream(self._last, stream, connection)

    def send(self, kind: Kind, number: int, content: bytes = b"") -> None:
        self._outbox.put_nowait(_HEAD.pack(kind, number) + content)

    async def _run_stream(self, number: int, stream: _Stream, connection: Connection) -> None:
        try:
            await stream.run(connection)
        finally:
            self._close(number)

    def _close(self, number: int) -> None:
        if self._streams.pop(number, None) is not None:  # else the other side has closed it first
            self.send(self._closing_kind, number)

    async def _write(self) -> None:
        while True:
            await self._channel.send(await self._outbox.get())

    async def _read(self) -> None:
        while True:
            message = await self._channel.receive()
            if not _HEAD.size <= len(message) <= MAX_MESSAGE_BYTES:
                raise Unavailable("a message of a wrong size")
            kind, number = _HEAD.unpack_from(message)
            self._dispatch(kind, number, message[_HEAD.size :])

    def _dispatch(self, kind: int, number: int, content: bytes) -> None:
        if kind == Kind.OPEN:
            return self._opened(number)
        stream = self._streams.get(number)
        if stream is None:
            return  # it ended here while this was on its way
        match kind:
            case Kind.DATA if content:
                stream.arrived(content)
            case Kind.CREDIT if len(content) == _COUNT.size:
                stream.credit_received(_COUNT.unpack(content)[0])
            case Kind.END:
                del self._streams[number]
                stream.ended()
            case Kind.RESET:
                del self._streams[number]
                stream.drop()
            case _:
                raise Unavailable("a message that makes no sense")

    def _opened(self, number: int) -> None:
        if self._accept is None or number <= self._last or len(self._streams) >= MAX_STREAMS:
            raise Unavailable("a stream that may not be opened")
        self._last = number
        stream = self._streams[number] = _Stream(self, number)
        task = asyncio.create_task(
            self._accept_stream(number, stream, self._accept), name=f"tunnel stream {number}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_stream(
        self, number: int, stream: _Stream, accept: Callable[[], Awaitable[Connection]]
    ) -> None:
        try:
            connection = await accept()
        except OSError:
            return self._close(number)
        await self._run_stream(number, stream, connection)
