"""The contract between the relay and its user: an admission admits requests, and an upstream call says where one goes.

The relay moves bytes and knows nothing of keys, models or replicas."""

from collections.abc import Awaitable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class Target(NamedTuple):
    """Where a replica listens: `host` and `port`, over TLS if `tls`, or the Unix socket at `unix`. The relay looks up no
    names: where `host` is one, `address` says where to connect."""

    host: str
    port: int
    tls: bool = False
    unix: str | None = None
    address: str | None = None


class RelayRequest:
    """One complete request. `headers` are all that came, with lower-case names; only those in `RelaySettings.forwarded` go
    on to the replica. `request_id` is ours, and both sides get it. `client` is the address that it came from.
    `caller` is whoever the admission found to ask: the relay only keeps it, for as long as the request is in flight."""

    __slots__ = ("authorization", "body", "caller", "client", "headers", "path", "request_id")

    def __init__(
        self,
        path: bytes,
        authorization: bytes | None,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        request_id: bytes,
        client: str = "",
    ) -> None:
        self.path = path
        self.authorization = authorization
        self.headers = headers
        self.body = body
        self.request_id = request_id
        self.client = client
        self.caller: object | None = None


class RelayFailure(StrEnum):
    """Why a call did not end with a complete response. The first four are faults of the replica."""

    UNREACHABLE = "unreachable"  # no connection
    LOST = "lost"  # the connection broke before the response was complete
    BROKEN = "broken"  # the response was not HTTP
    SILENT = "silent"  # a time limit passed
    REFUSED = "refused"  # it cannot serve now, and the client has seen nothing of that
    CLIENT_GONE = "client_gone"  # hung up, or stopped reading
    CLOSED = "closed"  # the relay was shut down


Usage = tuple[int, int]  # the engine's own count of tokens: of the prompt, of the completion


class RelayOutcome:
    """`status` is the replica's, or 0. `bytes_out` counts the bytes of its body that were passed on, `events` the events of
    a stream. `sent` says that the replica got the request."""

    __slots__ = ("bytes_out", "error", "events", "sent", "status", "usage")

    def __init__(
        self,
        status: int,
        bytes_out: int,
        usage: Usage | None,
        error: RelayFailure | None,
        events: int = 0,
        sent: bool = False,
    ) -> None:
        self.status = status
        self.bytes_out = bytes_out
        self.usage = usage
        self.error = error
        self.events = events
        self.sent = sent

    @property
    def client_gone(self) -> bool:
        return self.error is RelayFailure.CLIENT_GONE


class UpstreamCall:
    """One admitted request at one replica; subclass it.

    The relay calls `finished` exactly once for every call that it was given, whatever happens. What a call holds (a place
    in flight, a share of a limit) is given back there and nowhere else. It may come without `first_byte`, never before
    the call was returned. Both must be quick and must not raise.
    """

    __slots__ = ("body", "hides_usage", "path", "request_lines", "response_lines", "target")

    def __init__(
        self,
        target: Target,
        path: bytes,
        request_lines: bytes = b"",
        body: bytes | None = None,
        response_lines: bytes = b"",
        hides_usage: bool = False,
    ) -> None:
        """`path` is the replica's. `request_lines` are header lines besides the usual ones; `body` replaces the client's;
        `response_lines` are header lines that the client gets. With `hides_usage` a stream's event that only tells usage
        is read and not passed on."""
        self.target = target
        self.path = path
        self.request_lines = request_lines
        self.body = body
        self.response_lines = response_lines
        self.hides_usage = hides_usage

    def first_byte(self) -> None:
        """The first byte of the response's body has come."""

    def finished(self, outcome: RelayOutcome) -> None:
        """It is over, well or not."""
        raise NotImplementedError

    def retry(self) -> "UpstreamCall | Awaitable[UpstreamCall]":
        """A call for another replica, after `finished`, if the client has seen nothing of a response. Raises a TurnoutError
        if there is none."""
        raise NotImplementedError


class Admission(Protocol):
    def authenticate(
        self, authorization: bytes | None, headers: Sequence[tuple[bytes, bytes]], /
    ) -> Awaitable[object] | None:
        """Raises a TurnoutError, or returns an awaitable that does, if the caller's body should not be read. Called when the
        head of a request has come and a large body is to follow; `admit` checks again."""
        ...

    def account(self, authorization: bytes | None, headers: Sequence[tuple[bytes, bytes]], /) -> str:
        """Who takes the memory of a large body; empty if that is not known."""
        ...

    def admit(self, request: RelayRequest, /) -> UpstreamCall | Awaitable[UpstreamCall]:
        """The call, or an awaitable if a key must be looked up or a model must wake. Raises a TurnoutError to refuse. The
        awaitable has its own deadline. It is cancelled when the client hangs up, and then gives back what it took."""
        ...
