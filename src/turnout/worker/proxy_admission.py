"""Stores a worker's door to the streaming relay."""

from collections.abc import Awaitable

from turnout.domain.errors import Unavailable
from turnout.domain.serving import EngineKind
from turnout.engines.engine_servers import relay_paths
from turnout.observe import get_log
from turnout.relay import RelayOutcome, RelayRequest, RelaySettings, Target, UpstreamCall
from turnout.schemas.relay_tokens import REPLICA_HEADER
from turnout.worker.proxy_app import ProxyDoor
from turnout.worker.replica_owner import InFlight


class ProxyCall(UpstreamCall):
    """One request at one engine; the count of requests under way goes down when the relay says it is over."""

    __slots__ = ("_replica", "_request_id", "_visit")

    def __init__(self, target: Target, ask: RelayRequest, replica: str, visit: InFlight) -> None:
        lines = b"authorization: Bearer %b\r\n" % visit.key.encode() if visit.key else b""
        super().__init__(target, ask.path, lines)
        self._request_id = ask.request_id
        self._replica = replica
        self._visit = visit

    def finished(self, outcome: RelayOutcome) -> None:
        self._visit.end()
        if outcome.error is not None and not outcome.client_gone:
            get_log().warning(
                "engine failed a request",
                request=self._request_id.decode("latin-1"),
                replica=self._replica,
                failure=outcome.error.value,
            )

    def retry(self) -> UpstreamCall | Awaitable[UpstreamCall]:
        raise Unavailable("the engine did not answer", code="engine_unreachable")


class ProxyAdmission:
    def __init__(self, door: ProxyDoor) -> None:
        self._door = door

    def greet(self, authorization: bytes | None) -> None:
        self._door.check(authorization.decode("latin-1") if authorization else None)

    def admit(self, ask: RelayRequest) -> UpstreamCall:
        replica = next((value for name, value in ask.headers if name == REPLICA_HEADER), b"").decode(
            "latin-1"
        )
        shown = ask.authorization.decode("latin-1") if ask.authorization else None
        admitted = self._door.admit_to(replica, ask.path.decode("latin-1"), shown)
        host, _, port = admitted.address.rpartition(":")
        return ProxyCall(Target(host.strip("[]"), int(port)), ask, replica, admitted.visit)


def worker_relay_settings() -> RelaySettings:
    """One engine, one try: the gateway knows other replicas. Nothing is sent before the engine has answered, so
    that the gateway can still go elsewhere."""
    paths = frozenset[str]().union(*(relay_paths(engine) for engine in EngineKind))
    return RelaySettings(
        paths=paths,
        trusts_request_ids=True,
        max_attempts=1,
        retried_statuses=frozenset(),
        grace_s=86_400.0,
    )
