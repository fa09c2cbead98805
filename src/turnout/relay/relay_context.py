"""What the connections and exchanges of one relay share."""

from collections.abc import Callable
from typing import Protocol

from turnout.errors import TurnoutError
from turnout.relay.admission import Admission, RelayRequest, UpstreamCall
from turnout.relay.batching import ReadBatcher
from turnout.relay.body_budget import SMALL_BODY_BYTES, BodyBudget
from turnout.relay.connection_counts import ConnectionCounts
from turnout.relay.framing import Head
from turnout.relay.piece_queue import PieceQueue
from turnout.relay.relay_settings import RelaySettings
from turnout.relay.upstream import ConnectionPool


class OpenConnection(Protocol):
    """A client's connection, as the relay sees it."""

    def tick(self, now: float) -> None: ...
    def close(self) -> None: ...
    def reset(self) -> None: ...


class OpenRequest(Protocol):
    """A request in flight. `call` is None while it waits to be admitted."""

    request: RelayRequest

    @property
    def call(self) -> UpstreamCall | None: ...
    def close(self, err: TurnoutError | None = None) -> None:
        """Ends it with this error; by default because the service shuts down."""
        ...

    @property
    def quiet_s(self) -> float:
        """How long its replica has said nothing; 0 while nothing is expected of it."""
        ...

    def lose_replica(self) -> None:
        """Takes it away from its replica, as if the connection had broken."""
        ...


class RelayContext:
    """`hot_paths` have their own value as key, so that a path that is found can be kept without a copy. `response_lines`
    are in the head of every response. `now` is the time of the last tick, which is exact enough for deadlines. `watch`
    starts the ticks. `leaving`: connections end with the request that is under way."""

    def __init__(
        self,
        admission: Admission,
        settings: RelaySettings,
        pool: ConnectionPool,
        watch: Callable[[], None],
    ) -> None:
        self.admission = admission
        self.settings = settings
        self.pool = pool
        self.watch = watch
        self.batcher = ReadBatcher()
        self.counts = ConnectionCounts(settings.client)
        self.hot_paths = {path.encode(): path.encode() for path in settings.paths}
        self.done_paths = frozenset(path.encode() for path in settings.done_paths)
        self.forwarded = frozenset(name.lower().encode() for name in settings.forwarded)
        self.response_lines = b"".join([f"{n}: {v}\r\n".encode() for n, v in settings.response_headers])
        self.connections: set[OpenConnection] = set()
        self.bodies = BodyBudget(
            settings.client.max_bodies_bytes
        )  # of all requests, as long as they are held
        self.requests: set[OpenRequest] = set()
        self.pieces = PieceQueue()
        self.now = 0.0
        self.leaving = False

    def account_of(self, head: Head, size: int) -> str:
        """Who takes the memory of a body; nobody, if it is small."""
        return self.admission.account(head.authorization, head.headers) if size > SMALL_BODY_BYTES else ""
