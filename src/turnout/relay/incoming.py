"""A hot request that is being read: how far the parser is, its body so far, and when a body may be read."""

import asyncio
import re
from enum import Enum, auto
from typing import Any, cast

from pydantic_core import from_json
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from turnout.errors import TurnoutError
from turnout.relay.body_budget import SMALL_BODY_BYTES
from turnout.relay.framing import BODIES_FULL, Head, Refusal, body_too_large
from turnout.relay.relay_context import RelayContext
from turnout.relay.relay_settings import ClientLimits

_ASKS_FOR_STREAM = re.compile(rb'"stream"\s*:\s*true')

_RAW_SLACK_BYTES = 1024 * 1024


class _Busy:
    """Takes the place of uvicorn's last cycle, so that uvicorn queues the next one behind a hot request."""

    response_complete = False


BUSY = cast(RequestResponseCycle, _Busy())
NO_APP = cast(Any, None)


class ReadStage(Enum):
    """Where in the connection's requests the parser is."""

    BETWEEN = auto()
    HEAD = auto()
    BODY = auto()  # of a hot request
    ASGI_BODY = auto()  # of a request that uvicorn takes
    CLOSING = auto()  # what comes is thrown away; the connection ends after the last response


class Incoming:
    """A hot request whose body is being read, or that waits until earlier requests have their responses.

    `authenticating` is pending while it is not known whether the body should be read at all.
    """

    __slots__ = ("account", "authenticating", "charged", "complete", "head", "pieces", "raw_bytes", "size")

    def __init__(self, head: Head, authenticating: asyncio.Future[object] | None) -> None:
        self.head = head
        self.authenticating = authenticating
        self.pieces: list[bytes] = []
        self.size = self.raw_bytes = self.charged = 0
        self.account = ""
        self.complete = False

    def add(self, piece: bytes, limits: ClientLimits, context: RelayContext) -> Refusal | TurnoutError | None:
        """Keeps a piece of the body; returns why it cannot."""
        self.size += len(piece)
        if self.size > limits.max_body_bytes:
            return body_too_large(limits.max_body_bytes)
        if self.size > SMALL_BODY_BYTES:
            self.account = self.account or context.account_of(self.head, self.size)
            if not context.bodies.fits(self.account, len(piece)):
                return BODIES_FULL
            self.charged += len(piece)
            context.bodies.add(self.account, len(piece))
        else:
            context.bodies.add("", len(piece))
        self.pieces.append(piece)
        return None

    def take(self, context: RelayContext) -> bytes:
        """The body, which is not kept here any longer."""
        body = b"".join(self.pieces)
        self.pieces = []
        context.bodies.remove(self.account, self.charged)
        context.bodies.remove("", len(body) - self.charged)
        self.charged = 0
        return body

    def drop(self, context: RelayContext) -> None:
        """It will never be complete, or nobody waits for its response."""
        if self.authenticating is not None:
            self.authenticating.cancel()
        self.take(context)


def raw_limit(max_body_bytes: int) -> int:
    """How many bytes a body may take on the wire: chunks of one byte, extensions and trailers count, too."""
    return 2 * max_body_bytes + _RAW_SLACK_BYTES


def needs_authentication_first(head: Head) -> bool:
    """Whether the body is large, or waits for our consent: it should be read only for a known caller. A small one comes with
    its head, or nearly: its key is checked when it is there."""
    return head.content_length is None or head.content_length > SMALL_BODY_BYTES or head.expects_continue


def asks_for_stream(body: bytes) -> bool:
    """Checked only for requests that wait long: first by a cheap pattern, then by the parser."""
    if _ASKS_FOR_STREAM.search(body) is None:
        return False
    try:
        asked = from_json(body)
    except ValueError:
        return False
    return isinstance(asked, dict) and cast("dict[str, object]", asked).get("stream") is True
