"""The relay's limits: towards clients, towards replicas, and what it does with which request."""

from dataclasses import dataclass, field

_HOT = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"})
_DONE = frozenset({"/v1/chat/completions", "/v1/completions"})
_FORWARDED = frozenset({"accept", "content-type", "traceparent", "tracestate", "user-agent"})


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Pages of `cors_origins` may read the answers."""

    cors_origins: frozenset[bytes] = frozenset()

    max_connections: int = 8192
    max_connections_per_address: int = 1024  # or for each /64 network of IPv6
    trusted_proxies: tuple[str, ...] = ()  # networks whose X-Forwarded-For says whose connection it is

    max_url_bytes: int = 8000
    max_head_bytes: int = 32 * 1024
    max_headers: int = 100
    max_body_bytes: int = 32 * 1024 * 1024
    max_bodies_bytes: int = 512 * 1024 * 1024  # of all requests that are being read or answered
    max_pipelined: int = 8  # requests that wait on one connection before we stop reading

    head_s: float = 15.0  # for a request's head, from the start of the connection or the head's first byte
    body_stall_s: float = 30.0  # without a byte of a request's body
    body_s: float = 300.0  # for a request's body in all
    keep_alive_s: float = 75.0
    write_stall_s: float = 30.0  # a client that reads nothing for this long is gone

    @property
    def shortest_s(self) -> float:
        return min(self.head_s, self.body_stall_s, self.keep_alive_s, self.write_stall_s)


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    connect_s: float = 5.0
    answer_s: float = 900.0  # to the response's head: without streaming an engine sends nothing before
    chunk_s: float = 300.0  # between two reads of a response

    max_attempts: int = 3  # replicas that are tried for one request
    retried_statuses: frozenset[int] = frozenset({502, 503})  # after which another replica is tried

    idle_per_target: int = 256
    idle_s: float = 30.0  # an unused connection to a replica is closed after this
    max_age_s: float = 600.0  # no connection is used for longer

    comment_after_s: float = 5.0  # a stream without a response is begun, with comments that keep it open
    comment_every_s: float = 5.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts must be at least 1")

    @property
    def shortest_s(self) -> float:
        waits_s = (self.connect_s, self.answer_s, self.chunk_s, self.idle_s)
        return min(*waits_s, self.comment_after_s, self.comment_every_s)


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """POST requests for `paths` never reach the app. `forwarded` names the request headers that go on to the replica; the
    caller's key and cookies are not among them."""

    paths: frozenset[str] = _HOT
    done_paths: frozenset[str] = _DONE  # whose streams end with [DONE]; other dialects have other last events
    forwarded: frozenset[str] = _FORWARDED
    trusts_request_ids: bool = False  # a request keeps its X-Request-Id: only behind our own gateways
    response_headers: tuple[tuple[str, str], ...] = field(default=(("x-content-type-options", "nosniff"),))
    client: ClientLimits = ClientLimits()
    upstream: UpstreamLimits = UpstreamLimits()

    @property
    def tick_s(self) -> float:
        """How often deadlines are checked. One timer serves all, because a timer for each request costs CPU."""
        return min(0.5, max(0.01, min(self.client.shortest_s, self.upstream.shortest_s) / 4))
