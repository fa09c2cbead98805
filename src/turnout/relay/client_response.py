"""Writes the response to the client, and knows what was written so far.

Streams are written in whole events only, so that an error can always follow as an event of its own.
"""

import asyncio
from collections import deque
from typing import Protocol

from turnout.relay import error_responses
from turnout.relay.admission import RelayRequest
from turnout.relay.framing import Head, tells_its_end, whole_events
from turnout.relay.token_usage import TAIL_BYTES, tells_usage, without_usage
from turnout.relay.upstream import UpstreamConnection

_MAX_HELD_BYTES = 256 * 1024  # of an incomplete event, before it is passed on all the same
_COPIED_BYTES = 16 * 1024  # up to this size one joined write is cheaper than several
_RECENT_READS = 8  # whose ends are kept
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
    @property
    def address(self) -> str: ...

    def response_ended(self, keep_alive: bool) -> None:
        """The response is complete; the next request may start."""
        ...

    def reset(self) -> None:
        """The response cannot be completed: the client must see a broken connection."""
        ...


class ClientResponse:
    """First values stand on the class, which costs a request nothing."""

    begun = False  # a head was written
    events = False  # the response is a stream of events
    bytes_out = 0  # of the engine's body
    events_out = 0
    hides_usage = False  # the client did not ask for the event that tells it
    call_lines = b""  # header lines from the admission
    _chunked = False
    _incomplete_event = b""  # the beginning of an event
    _event_cut = False  # an event was too long to be held back, and was passed on in parts
    _single_read = b""  # the engine's body, if it came in one read
    _last_chunks = b""  # the last read that was passed on as it came
    _recent_reads: deque[bytes] | None = None  # the ends of the last reads, if it did not

    def __init__(
        self, client: ClientSide, head: Head, body: bytes, request_id: bytes, common_lines: bytes
    ) -> None:
        """`common_lines` are in the head of every response."""
        self.request = RelayRequest(
            head.path, head.authorization, head.headers, body, request_id, client.address
        )
        self.client = client
        self.transport = client.transport
        self.keep_alive = head.keep_alive
        self._http10 = head.http10
        self._common_lines = common_lines

    @property
    def name(self) -> str:
        """The request in logs, here and at the replica."""
        return self.request.request_id.decode("latin-1")

    def begin(self, upstream: UpstreamConnection) -> bytes:
        """The head of the engine's response, which is written with the first bytes of the body."""
        head = upstream.head
        self.begun = True
        self.events = events = head.events
        if upstream.length is not None and not events:
            framing = b"content-length: %b\r\n" % upstream.length
        else:
            self._chunked = not self._http10
            framing = _CHUNKED if self._chunked else b""
        return self._head(head.start, framing)

    def begin_stream(self) -> None:
        """Begins a stream of our own, before the engine has responded."""
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
            if self._recent_reads is not None:
                self._recent_reads.append(payload[-TAIL_BYTES:])
            elif last:
                self._single_read = payload
            else:
                self._recent_reads = deque((payload[-TAIL_BYTES:],), _RECENT_READS)
        if self.events and (payload or last):
            payload = self._whole(payload, last=last)
            self.events_out += payload.count(b"\n\n")
            if self.hides_usage and tells_usage(payload):
                payload = without_usage(payload)
        self._write(head, payload, last=last)

    def pass_on_chunks(self, chunks: bytes, size: int) -> bool:
        """The fast path of a stream: whole chunks of whole events are written as they came. False if they must be
        changed or looked into."""
        if not self._chunked or self._incomplete_event or self._recent_reads is None or tells_usage(chunks):
            return False
        self.bytes_out += size
        self.events_out += chunks.count(b"\n\n")
        self._last_chunks = chunks
        self.transport.write(chunks)
        return True

    def refuse(self, status: int, headers: bytes, body: bytes) -> None:
        """Writes an error as a whole response, or as an event if a stream was begun."""
        if self.begun:
            return self.end_with_event(body)
        self.respond(status, headers, body)

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Writes a whole response."""
        self.begun = True
        lines = headers + self._lines()
        self.transport.write(error_responses.response(status, body, lines, keep_alive=self.keep_alive))

    def end_with_event(self, body: bytes) -> None:
        """Ends a stream with an error."""
        self._incomplete_event = b""
        self._write(b"", (b"\n\n" if self._event_cut else b"") + error_responses.event(body), last=True)

    def tail(self) -> bytes:
        """The end of the engine's body."""
        recent = self._single_read if self._recent_reads is None else b"".join(self._recent_reads)
        return recent[-TAIL_BYTES:]

    def tells_its_end(self, payload: bytes) -> bool:
        """Whether a stream that ends with `payload` said that it is over. Only its last reads are searched."""
        return tells_its_end(self._last_chunks, self.tail() + payload)

    def _head(self, start: bytes, framing: bytes) -> bytes:
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        return b"%b%b%b%b\r\n" % (start, framing, self._lines(), closing)

    def _lines(self) -> bytes:
        return b"x-request-id: %b\r\n%b%b" % (self.request.request_id, self._common_lines, self.call_lines)

    def _whole(self, payload: bytes, *, last: bool) -> bytes:
        if self._incomplete_event:
            payload = self._incomplete_event + payload
            self._incomplete_event = b""
        if last or payload.endswith(b"\n\n"):
            return payload
        end = whole_events(payload)
        if len(payload) - end > _MAX_HELD_BYTES:
            self._event_cut = True
            return payload
        self._incomplete_event = payload[end:]
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
