"""The client's side of an exchange: what it has been told so far, and the bytes of what it is told next.

Streams of events leave in whole events only, so that a problem can always follow as an event of its own.
"""

import asyncio
from collections import deque
from typing import Protocol

from turnout.relay import error_responses
from turnout.relay.admission import RelayRequest
from turnout.relay.framing import Head, whole_events
from turnout.relay.token_usage import TAIL_BYTES, tells_usage, without_usage
from turnout.relay.upstream import UpstreamConnection

_MAX_HELD_BYTES = 256 * 1024  # of an event that is not whole, before it is passed on all the same
_COPIED_BYTES = 16 * 1024  # below this one joined write is cheaper than several
_RECENT = 8  # reads whose ends are remembered
_CHUNKED = b"transfer-encoding: chunked\r\n"
_STREAM_START = (
    error_responses.status_line(200)
    + b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
)


class ClientSide(Protocol):
    """The connection that a request came on."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def transport(self) -> asyncio.Transport: ...
    @property
    def write_paused(self) -> bool: ...

    def ended(self, keep_alive: bool) -> None:
        """The answer is complete; the next request may go ahead."""
        ...

    def cut(self) -> None:
        """The answer cannot be completed: the client must see a broken connection."""
        ...


class ClientResponse:
    """Most of what it knows has the same value at first for all, so it stands on the class: that costs nothing."""

    begun = False  # a head went out
    events = False  # it is a stream of events
    bytes_out = 0  # of the engine's body
    events_out = 0
    hides_usage = False  # the client did not ask for the event that tells it
    ticket_lines = b""  # of the head, from the desk
    _chunked = False
    _held = b""  # of an event that is not whole yet
    _ragged = False  # an event was too long to be held back
    _only = b""  # what the engine said, if it came in one read
    _recent: deque[bytes] | None = None  # what it said last, if not

    def __init__(
        self, client: ClientSide, head: Head, body: bytes, request_id: bytes, our_lines: bytes
    ) -> None:
        """`our_lines` stand in the head of every answer."""
        self.ask = RelayRequest(head.path, head.authorization, head.headers, body, request_id)
        self.client = client
        self.transport = client.transport
        self.keep_alive = head.keep_alive
        self._http10 = head.http10
        self._our_lines = our_lines

    def begin(self, link: UpstreamConnection) -> bytes:
        """The head of the engine's answer, which goes out with the first bytes of the body."""
        head = link.head
        self.begun = True
        self.events = events = head.events
        if link.length is not None and not events:
            framing = b"content-length: %b\r\n" % link.length
        elif head.bodiless:
            framing = b""
        else:
            self._chunked = not self._http10
            framing = _CHUNKED if self._chunked else b""
        return self._head(head.start, framing)

    def begin_stream(self) -> None:
        """Begins a stream of our own, before there is an answer."""
        self.begun = self.events = True
        self._chunked = not self._http10
        self.transport.write(self._head(_STREAM_START, _CHUNKED if self._chunked else b""))

    def comment(self, words: bytes) -> None:
        """Keeps a stream open."""
        if not self.client.write_paused:
            self._write(b"", b": %b\n\n" % words, last=False)

    def pass_on(self, head: bytes, payload: bytes, *, last: bool) -> None:
        if payload:
            self.bytes_out += len(payload)
            if self._recent is not None:
                self._recent.append(payload[-TAIL_BYTES:])
            elif last:
                self._only = payload
            else:
                self._recent = deque((payload[-TAIL_BYTES:],), _RECENT)
        if self.events and (payload or last):
            payload = self._whole(payload, last=last)
            self.events_out += payload.count(b"\n\n")
            if self.hides_usage and tells_usage(payload):
                payload = without_usage(payload)
        self._write(head, payload, last=last)

    def pass_on_chunks(self, chunks: bytes, size: int) -> bool:
        """The short way for most reads of a stream: whole chunks of whole events go on as they came. False where
        something has to be done with them."""
        if not self._chunked or self._held or self._recent is None or tells_usage(chunks):
            return False
        self.bytes_out += size
        self.events_out += chunks.count(b"\n\n")
        self.transport.write(chunks)
        return True

    def refuse(self, status: int, headers: bytes, body: bytes) -> None:
        """A whole answer that tells a problem, or its event if a stream was begun."""
        if self.begun:
            return self.end_with_event(body)
        self.begun = True
        lines = headers + self._lines()
        self.transport.write(error_responses.answer(status, body, lines, keep_alive=self.keep_alive))

    def end_with_event(self, body: bytes) -> None:
        """Ends a stream with a problem."""
        self._held = b""
        self._write(b"", (b"\n\n" if self._ragged else b"") + error_responses.event(body), last=True)

    def tail(self) -> bytes:
        """The end of what the engine said."""
        recent = self._only if self._recent is None else b"".join(self._recent)
        return recent[-TAIL_BYTES:]

    def _head(self, start: bytes, framing: bytes) -> bytes:
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        return b"%b%b%b%b\r\n" % (start, framing, self._lines(), closing)

    def _lines(self) -> bytes:
        return b"x-request-id: %b\r\n%b%b" % (self.ask.request_id, self._our_lines, self.ticket_lines)

    def _whole(self, payload: bytes, *, last: bool) -> bytes:
        if self._held:
            payload = self._held + payload
            self._held = b""
        if last or payload.endswith(b"\n\n"):
            return payload
        end = whole_events(payload)
        if len(payload) - end > _MAX_HELD_BYTES:
            self._ragged = True
            return payload
        self._held = payload[end:]
        return payload[:end]

    def _write(self, head: bytes, payload: bytes, *, last: bool) -> None:
        transport = self.transport
        if not self._chunked:
            if len(payload) >= _COPIED_BYTES:
                transport.writelines((head, payload) if head else (payload,))
            elif head or payload:
                transport.write(head + payload)
            return
        if not payload:
            end = b"0\r\n\r\n" if last else b""
            if head or end:
                transport.write(head + end)
            return
        end = b"\r\n0\r\n\r\n" if last else b"\r\n"
        if len(payload) < _COPIED_BYTES:
            transport.write(b"%b%x\r\n%b%b" % (head, len(payload), payload, end))
        else:
            transport.writelines((b"%b%x\r\n" % (head, len(payload)), payload, end))
