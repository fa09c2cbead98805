"""What the relay asks of the rest: a desk that admits requests, and tickets that say where each one goes.

The relay moves bytes and knows nothing of keys, models or replicas. What is made for every request is a plain class:
mypyc compiles these, and leaves named tuples and dataclasses to the interpreter.
"""

from collections.abc import Awaitable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from mypy_extensions import mypyc_attr


class Target(NamedTuple):
    """Where a replica listens: `host` and `port`, over TLS if `tls`, or the Unix socket at `unix`."""

    host: str
    port: int
    tls: bool = False
    unix: str | None = None


class RelayRequest:
    """One whole request. `headers` are all that came, with lower-case names; none of them goes on by itself
    but those that `RelaySettings.forwarded` names. `request_id` is ours and is told to both sides."""

    __slots__ = ("authorization", "body", "headers", "path", "request_id")

    def __init__(
        self,
        path: bytes,
        authorization: bytes | None,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        request_id: bytes,
    ) -> None:
        self.path = path
        self.authorization = authorization
        self.headers = headers
        self.body = body
        self.request_id = request_id


class RelayFailure(StrEnum):
    """Why a ticket did not end with a whole answer. The first four speak against the replica."""

    UNREACHABLE = "unreachable"  # no connection
    LOST = "lost"  # the connection broke before the answer was whole
    BROKEN = "broken"  # what came back was not HTTP
    SILENT = "silent"  # a time limit passed
    REFUSED = "refused"  # it answered that it cannot serve now, and nothing of that was shown
    CLIENT_GONE = "client_gone"  # hung up, or stopped reading
    CLOSED = "closed"  # the relay was shut down


Usage = tuple[int, int]  # the engine's own count of tokens: of the prompt, of the completion


class RelayOutcome:
    """`status` is the replica's (0 when it gave none); `bytes_out` counts the bytes of its body that were passed on,
    `events` the events among them, if it was a stream; `asked` says that the replica got the request."""

    __slots__ = ("asked", "bytes_out", "error", "events", "status", "usage")

    def __init__(
        self,
        status: int,
        bytes_out: int,
        usage: Usage | None,
        error: RelayFailure | None,
        events: int = 0,
        asked: bool = False,
    ) -> None:
        self.status = status
        self.bytes_out = bytes_out
        self.usage = usage
        self.error = error
        self.events = events
        self.asked = asked

    @property
    def client_gone(self) -> bool:
        return self.error is RelayFailure.CLIENT_GONE


@mypyc_attr(allow_interpreted_subclasses=True)
class UpstreamCall:
    """One admitted request at one replica; subclass it.

    The relay calls `finished` exactly once on every ticket that it was given, whatever happens, so what a ticket
    holds (a place in flight, a share of a limit) is given back there and nowhere else. It may come before
    `first_byte`, never before the ticket was returned. Both must be quick and must not raise.
    """

    __slots__ = ("answer_lines", "body", "hides_usage", "lines", "path", "target")

    def __init__(
        self,
        target: Target,
        path: bytes,
        lines: bytes = b"",
        body: bytes | None = None,
        answer_lines: bytes = b"",
        hides_usage: bool = False,
    ) -> None:
        """`path` is what to ask for, `lines` are header lines besides the usual ones, `body` replaces the client's;
        `answer_lines` are header lines that the client gets. With `hides_usage` the event of a stream that only
        tells usage is read and not passed on."""
        self.target = target
        self.path = path
        self.lines = lines
        self.body = body
        self.answer_lines = answer_lines
        self.hides_usage = hides_usage

    def first_byte(self) -> None:
        """The first byte of the answer's body has come."""

    def finished(self, outcome: RelayOutcome) -> None:
        """It is over, well or not."""
        raise NotImplementedError

    def retry(self) -> "UpstreamCall | Awaitable[UpstreamCall]":
        """A ticket for another replica; called after `finished`, when the client has seen nothing of the answer.
        Raises a TurnoutError when there is none."""
        raise NotImplementedError


class Admission(Protocol):
    def greet(self, authorization: bytes | None) -> Awaitable[object] | None:
        """Raises a TurnoutError, or returns an awaitable that does, when the caller is nobody whose body should be
        read. Asked when the head of a request has come and a large body is to follow; `admit` checks again."""
        ...

    def admit(self, ask: RelayRequest) -> UpstreamCall | Awaitable[UpstreamCall]:
        """A ticket at once, or an awaitable where the key must be looked up or the model must wake; raises
        a TurnoutError to refuse. The awaitable has its own deadline. It is cancelled when the client hangs up;
        a coroutine that is cancelled gives back what it took."""
        ...
