"""Framing of messages: which request heads are refused, and the heads that we write. Pure.

httptools (llhttp, strict) has already refused folded lines, stray line ends, control characters, a repeated or
malformed Content-Length, one beside a Transfer-Encoding, and bad chunks. What it accepts is checked further here.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from turnout.errors import Unavailable
from turnout.relay.relay_settings import ClientLimits

_HEX = b"0123456789abcdefABCDEF"
_MAX_HEX_DIGITS = 7

Headers = Sequence[tuple[bytes, bytes]]

# The last word of a stream: [DONE], or an error that its writer told. A line of text inside of an event's JSON cannot
# begin like this.
_LAST_WORD = re.compile(rb'(?:\A|[\r\n])(?:data: ?(?:\[DONE\]|\{\s*"error")|event: ?error|error:)')
# How nearly every stream ends, with and without the end of its chunk. The pattern takes 100 µs for 4 KiB.
_DONE = (b"\ndata: [DONE]\n\n", b"\ndata: [DONE]\n\n\r\n")
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

# An engine's answer is a stranger's: a cookie, a redirect or a policy of its own would be ours to the client.
_PASSED_ON = frozenset({b"content-type", b"content-encoding"})

CORS_EXPOSED = ("openai-poll-after-ms", "retry-after", "x-request-id", "x-turnout-budget")
"""What pages of other origins may read of an answer's headers, beside its body."""
_EXPOSED = b"access-control-expose-headers: %b\r\n" % ", ".join(CORS_EXPOSED).encode()


class Refusal(NamedTuple):
    status: int
    message: str
    code: str


HEAD_TOO_LARGE = Refusal(431, "The head of the request is too long.", "head_too_large")
URL_TOO_LONG = Refusal(414, "The URL is too long.", "head_too_large")
HEAD_TIMEOUT = Refusal(408, "The head of the request did not come in time.", "request_timeout")
BODY_TIMEOUT = Refusal(408, "The body of the request did not come in time.", "request_timeout")
NO_UPGRADE = Refusal(400, "This path cannot be upgraded.", "bad_framing")
UPGRADE_TOO_SOON = Refusal(400, "Wait for the answer before you upgrade.", "bad_framing")
UPGRADE_WITH_BODY = Refusal(400, "A request that upgrades has no body.", "bad_framing")


BODIES_FULL = Unavailable("Too many large requests at once.", code="bodies_full")


def body_too_large(max_body_bytes: int) -> Refusal:
    return Refusal(413, f"The body is over {max_body_bytes} bytes.", "body_too_large")


class Head(NamedTuple):
    """A request's head. `upgrade` says that there is an Upgrade header. `forwarded` are the header lines that go on to the replica; `content_length` is None for a body in
    chunks. `request_id` is the peer's own id of the request, if it is plain enough to be passed on. `response_lines` are
    header lines of the answer that follow from the head."""

    path: bytes
    authorization: bytes | None
    headers: Headers
    forwarded: bytes
    content_length: int | None
    expects_continue: bool
    http10: bool
    keep_alive: bool
    request_id: bytes | None = None
    upgrade: bool = False
    response_lines: bytes = b""


def read_head(
    path: bytes,
    version: str,
    keep_alive: bool,
    headers: Headers,
    forwarded: frozenset[bytes],
    limits: ClientLimits,
) -> Head | Refusal:
    """The head of a request, or why it is refused; the connection must then be closed."""
    if _is_too_large(headers, limits):
        return HEAD_TOO_LARGE
    authorization: bytes | None = None
    content_length: int | None = 0
    request_id: bytes | None = None
    hosts = 0
    expects = upgrade = False
    lines = cors = b""
    for name, value in headers:
        if name in forwarded:
            lines += b"%b: %b\r\n" % (name, value)
        elif name == b"authorization":
            if authorization is not None:
                return Refusal(400, "There are two Authorization headers.", "bad_framing")
            authorization = value
        elif name == b"host":
            hosts += 1
        elif name == b"content-length":
            content_length = int(value)
        elif name == b"transfer-encoding":
            if (refusal := _encoding_refusal(version, value)) is not None:
                return refusal
            content_length = None
        elif name == b"expect":
            if value.lower() != b"100-continue":
                return Refusal(417, "The only expectation that can be met is 100-continue.", "bad_framing")
            expects = version == "1.1"
        elif name == b"x-request-id":
            request_id = value if _PLAIN_ID.fullmatch(value) else None
        elif name == b"upgrade":
            upgrade = True
        elif name == b"origin" and limits.cors_origins:
            cors = _cors_lines(value, limits.cors_origins)
    http10 = version == "1.0"
    if (refusal := _version_refusal(version, hosts)) is not None:
        return refusal
    if content_length is not None and content_length > limits.max_body_bytes:
        return body_too_large(limits.max_body_bytes)
    return Head(
        path,
        authorization,
        headers,
        lines,
        content_length,
        expects,
        http10,
        keep_alive and not http10,
        request_id,
        upgrade,
        cors,
    )


def _is_too_large(headers: Headers, limits: ClientLimits) -> bool:
    size = sum([len(name) + len(value) for name, value in headers])
    return len(headers) > limits.max_headers or size > limits.max_head_bytes


def _encoding_refusal(version: str, encoding: bytes) -> Refusal | None:
    if version != "1.1":
        return Refusal(400, "HTTP/1.0 has no Transfer-Encoding.", "bad_framing")
    if encoding.lower() != b"chunked":
        return Refusal(501, "The only Transfer-Encoding is chunked.", "bad_framing")
    return None


def _version_refusal(version: str, hosts: int) -> Refusal | None:
    if version not in ("1.0", "1.1"):
        return Refusal(505, "Speak HTTP/1.1.", "bad_framing")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return Refusal(400, "A request has one Host header.", "bad_framing")
    return None


def _cors_lines(origin: bytes, allowed: frozenset[bytes]) -> bytes:
    """Header lines for a page of this origin; none if it may not read the response."""
    named = b"*" if b"*" in allowed else origin
    if named not in allowed:
        return b""
    return b"access-control-allow-origin: %b\r\nvary: origin\r\n%b" % (named, _EXPOSED)


def upgrade_refusal(head: Head, longest_line: int, *, busy: bool) -> Refusal | None:
    """Why a request may not become a WebSocket. What the WebSocket's own parser refuses it would not answer. `busy` says
    that an earlier request has no answer yet."""
    if busy:
        return UPGRADE_TOO_SOON
    if head.content_length != 0:
        return UPGRADE_WITH_BODY
    if any(len(name) + len(value) > longest_line for name, value in head.headers):
        return HEAD_TOO_LARGE
    return None


def request_head(
    path: bytes, host: bytes, length: int, request_id: bytes, forwarded: bytes, lines: bytes
) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b\r\n" % (
        path,
        host,
        length,
        request_id,
        forwarded,
        lines,
    )


def passed_on(headers: Headers) -> bytes:
    """The header lines of an engine's response that the client gets."""
    return b"".join([b"%b: %b\r\n" % (name, value) for name, value in headers if name in _PASSED_ON])


def whole_events(data: bytes) -> int:
    """How much of `data` is whole server-sent events."""
    if data.endswith(b"\n\n"):
        return len(data)
    ends = [at + len(mark) for mark in (b"\n\n", b"\r\n\r\n", b"\r\r") if (at := data.rfind(mark)) >= 0]
    return max(ends, default=0)


def tells_its_end(chunks: bytes, events: bytes) -> bool:
    """Whether what was read last of a stream says that it is over, well or with an error: the last whole chunks, and the
    last events that were read otherwise."""
    if chunks.endswith(_DONE) or events.endswith(_DONE):
        return True
    return _LAST_WORD.search(chunks) is not None or _LAST_WORD.search(events) is not None


def size_of_event_chunks(data: bytes) -> int:
    """How many bytes are in the chunks of `data`, if it is nothing but whole chunks of whole events; else 0."""
    at = size = 0
    while at < len(data):
        line = data.find(b"\r\n", at, at + _MAX_HEX_DIGITS + 2)
        digits = data[at:line]
        if line <= at or digits.strip(_HEX):
            return 0
        length = int(digits, 16)
        at = line + length + 4
        if data[at - 4 : at] != b"\n\n\r\n":
            return 0
        size += length
    return size
