"""How replicas are reached through their workers' proxies: address and headers, made once for each route."""

from collections.abc import Callable
from urllib.parse import urlsplit

from turnout.domain.serving import ReplicaId, Route, WorkerId
from turnout.relay import Target
from turnout.schemas.relay_tokens import REPLICA_HEADER

_MAX_KEPT = 10_000


class ProxyRoute:
    __slots__ = ("lines", "route", "target", "token")

    def __init__(self, route: Route, token: str) -> None:
        url = urlsplit(route.url)
        tls = url.scheme == "https"
        self.route = route
        self.token = token
        self.target = Target(url.hostname or "", url.port or (443 if tls else 80), tls)
        self.lines = b"%b: %b\r\nauthorization: Bearer %b\r\n" % (
            REPLICA_HEADER,
            route.replica.encode(),
            token.encode(),
        )


class ProxyRoutes:
    """`token` gives what a worker's proxy asks for. Routes are kept: to read a URL costs more than to choose a
    replica."""

    def __init__(self, token: Callable[[WorkerId], str]) -> None:
        self._token = token
        self._kept: dict[ReplicaId, ProxyRoute] = {}

    def find(self, route: Route) -> ProxyRoute:
        token = self._token(route.worker)
        kept = self._kept.get(route.replica)
        if kept is None or kept.route is not route or kept.token != token:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            kept = self._kept[route.replica] = ProxyRoute(route, token)
        return kept
