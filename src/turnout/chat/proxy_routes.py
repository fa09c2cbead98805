"""How replicas are reached through their workers' proxies: address and headers, made once for each route."""

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import Route
from turnout.relay import Target
from turnout.worker.relay_tokens import REPLICA_HEADER

_MAX_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class WorkerProxy:
    """Where a worker's proxy listens, the token that it asks for, and the address where it proved to be. A URL with a name
    is never looked up again."""

    url: str
    token: str = field(repr=False)
    address: str = ""


class ProxyRoute:
    __slots__ = ("lines", "proxy", "route", "target")

    def __init__(self, route: Route, proxy: WorkerProxy) -> None:
        url = urlsplit(proxy.url)
        tls = url.scheme == "https"
        self.route = route
        self.proxy = proxy
        self.target = Target(
            url.hostname or "", url.port or (443 if tls else 80), tls, address=proxy.address or None
        )
        self.lines = b"%b: %b\r\nauthorization: Bearer %b\r\n" % (
            REPLICA_HEADER,
            route.replica.encode(),
            proxy.token.encode(),
        )


class ProxyRoutes:
    """`proxy_of` says how a worker is reached. Routes are kept: to read a URL costs more than to choose a replica."""

    def __init__(self, proxy_of: Callable[[WorkerId], WorkerProxy]) -> None:
        self._proxy_of = proxy_of
        self._kept: dict[ReplicaId, ProxyRoute] = {}

    def find(self, route: Route) -> ProxyRoute:
        proxy = self._proxy_of(route.worker)
        kept = self._kept.get(route.replica)
        if kept is None or kept.route is not route or kept.proxy is not proxy:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            kept = self._kept[route.replica] = ProxyRoute(route, proxy)
        return kept
