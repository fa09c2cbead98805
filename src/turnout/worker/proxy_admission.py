"""Admits gateways' requests to this worker's replicas, for the streaming relay that carries them.

Nothing else of the machine can be reached this way. A request must show the relay token, name a replica that takes
requests now, and ask for a known path of its engine.
"""

import hmac
from collections.abc import Awaitable, Callable

from turnout.engines.servers.engine_servers import relay_paths
from turnout.errors import NotFound, Unauthorized, Unavailable
from turnout.fleet.model_rules import EngineKind
from turnout.relay import (
    ClientLimits,
    Headers,
    RelayOutcome,
    RelayRequest,
    RelaySettings,
    Target,
    UpstreamCall,
    UpstreamLimits,
)
from turnout.telemetry.log import get_log
from turnout.telemetry.trace_rules import trace_field_of
from turnout.worker.relay_tokens import REPLICA_HEADER
from turnout.worker.replica_owner import InFlight
from turnout.worker.replica_set import ReplicaSet


class ProxyCall(UpstreamCall):
    """One request at one engine. It counts as in flight until the relay says that it is over."""

    __slots__ = ("_in_flight", "_replica", "_request")

    def __init__(self, request: RelayRequest, replica: str, in_flight: InFlight) -> None:
        lines = b"authorization: Bearer %b\r\n" % in_flight.key.encode() if in_flight.key else b""
        host, _, port = in_flight.address.rpartition(":")
        super().__init__(Target(host.strip("[]"), int(port)), request.path, lines)
        self._request = request
        self._replica = replica
        self._in_flight = in_flight

    def finished(self, outcome: RelayOutcome) -> None:
        self._in_flight.end()
        if outcome.error is not None and not outcome.client_gone:
            get_log().warning(
                "engine failed a request",
                request=self._request.request_id.decode("latin-1"),
                replica=self._replica,
                failure=outcome.error.value,
                **trace_field_of(self._request.headers),
            )

    def retry(self) -> UpstreamCall | Awaitable[UpstreamCall]:
        raise Unavailable("the engine did not answer", code="engine_unreachable")


class ProxyAdmission:
    """`token` gives what gateways must show; None before this worker has registered, when nobody is admitted."""

    def __init__(self, replicas: ReplicaSet, token: Callable[[], str | None]) -> None:
        self._replicas = replicas
        self._token = token

    def authenticate(self, authorization: bytes | None, headers: Headers) -> None:
        self.check(authorization)

    def account(self, authorization: bytes | None, headers: Headers) -> str:
        return ""  # gateways alone call here, and have bounded each tenant's bodies

    def admit(self, request: RelayRequest) -> UpstreamCall:
        """Raises Unauthorized, NotFound (not a path of the engine) and Unavailable (the replica is not here, or takes
        no requests now). Gateways look elsewhere for what is unavailable, such as the replicas that a worker had
        before it was restarted."""
        self.check(request.authorization)
        named = next((value for name, value in request.headers if name == REPLICA_HEADER), b"").decode(
            "latin-1"
        )
        try:
            replica = self._replicas.find(named)
        except NotFound as err:
            raise Unavailable(err.message, code=err.code) from err
        path, engine = request.path.decode("latin-1"), replica.model.engine
        if path not in relay_paths(engine):
            raise NotFound(f"{path[:80]!r} is not a path of {engine} engines", code="path_not_allowed")
        return ProxyCall(request, named, replica.admit())

    def check(self, authorization: bytes | None) -> None:
        """Raises Unauthorized, or Unavailable before this worker has registered."""
        token = self._token()
        if token is None:
            raise Unavailable("this worker has not registered yet", code="worker_not_ready")
        scheme, _, shown = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(shown, token.encode()):
            raise Unauthorized("only gateways may call this worker", code="invalid_token")


def worker_relay_settings() -> RelaySettings:
    """One engine, one try: the gateway knows other replicas. Nothing is sent before the engine has answered, so
    that the gateway can still go elsewhere."""
    paths = frozenset[str]().union(*(relay_paths(engine) for engine in EngineKind))
    return RelaySettings(
        paths=paths,
        trusts_request_ids=True,
        response_headers=(),  # the gateway adds them
        client=ClientLimits(max_connections_per_address=4096),  # a gateway has one for each request in flight
        upstream=UpstreamLimits(max_attempts=1, retried_statuses=frozenset(), comment_after_s=86_400.0),
    )
