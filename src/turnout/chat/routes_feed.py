"""Takes the routes that the manager pushes, and gives them to the switchboard as this gateway sees them. Requests never
wait for it."""

import asyncio
from collections.abc import Collection
from dataclasses import replace

from turnout.chat.proxy_routes import WorkerProxy
from turnout.chat.seat_rules import refusal_of
from turnout.chat.switchboard import Switchboard
from turnout.errors import Unavailable
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_store import ModelStore
from turnout.fleet.route_rules import ModelRoutes, Route
from turnout.fleet.route_table import RouteTable
from turnout.fleet.worker_rules import TUNNEL, Enrolment
from turnout.fleet.worker_store import WorkerStore
from turnout.telemetry.log import get_log
from turnout.worker.relay_tokens import relay_token_from_digest
from turnout.worker.tunnel.gateway_end import GatewayTunnels

_RETRY_S = 0.5
_NOWHERE = WorkerProxy("", "")

log = get_log()


class RoutesFeed:
    """Only workers that are registered are routed to, whatever the manager says."""

    def __init__(
        self,
        routes: RouteTable,
        models: ModelStore,
        workers: WorkerStore,
        switchboard: Switchboard,
        tunnels: GatewayTunnels,
    ) -> None:
        self._routes = routes
        self._models = models
        self._workers = workers
        self._switchboard = switchboard
        self._tunnels = tunnels
        self._enrolled: dict[WorkerId, Enrolment] = {}
        self._proxies: dict[WorkerId, WorkerProxy] = {}
        self._known: dict[str, ModelRoutes] = {}
        self._applied = False  # whether the switchboard has any routes yet
        tunnels.changed = self._apply

    @property
    def routed(self) -> Collection[WorkerId]:
        return self._enrolled.keys()

    def suspects(self) -> Collection[WorkerId]:
        """Workers that the manager does not hear."""
        return self._workers_of(suspect=True)

    def heard(self) -> Collection[WorkerId]:
        """Workers that have replicas and are heard."""
        return self._workers_of(suspect=False)

    def worker_urls(self) -> Collection[str]:
        """Of the workers that requests are sent to."""
        return {worker.url for worker in self._enrolled.values()}

    def refusal(self, model: str) -> str | None:
        """Why the model cannot be served now; None while there is hope."""
        there = self._known.get(model)
        return None if there is None else refusal_of(there)

    def proxy_of(self, worker: WorkerId) -> WorkerProxy:
        """How the worker is reached now; nowhere, if it is not registered any more."""
        return self._proxies.get(worker, _NOWHERE)

    def withdraw(self, workers: Collection[WorkerId]) -> None:
        """Ends all routes to these workers, without waiting for the manager."""
        if not self._enrolled.keys().isdisjoint(workers):
            self._enrol({w: e for w, e in self._enrolled.items() if w not in workers})
            self._apply()

    async def run(self) -> None:
        while True:
            known: dict[str, ModelRoutes] = {}
            try:
                async for changes in self._routes.tail():
                    self._known = known  # a tail begins with all there is
                    for model, routes in changes.items():
                        if routes is None:
                            known.pop(model, None)
                        else:
                            known[model] = routes
                    if not (known or self._applied) and await self._models.all():
                        continue  # no manager has looked at the models yet: requests for them wait
                    workers = {r.worker for there in known.values() for r in there.routes}
                    self._enrol(await self._workers.enrolments(workers) if workers else {})
                    self._apply()
            except Unavailable as err:
                log.warning(
                    "routes not read, using the last ones", reason=err.message
                )  # the last ones serve on
            await asyncio.sleep(_RETRY_S)

    def _workers_of(self, *, suspect: bool) -> Collection[WorkerId]:
        routes = (route for there in self._known.values() for route in there.routes)
        return {route.worker for route in routes if route.suspect is suspect}

    def _enrol(self, workers: dict[WorkerId, Enrolment]) -> None:
        self._enrolled = workers
        self._find_proxies()

    def _find_proxies(self) -> None:
        """As they were proven when the workers registered, or through their tunnels. What has not changed stays the same
        object."""
        found = {w: self._proxy(e) for w, e in self._enrolled.items()}
        same = {w: old for w, old in self._proxies.items() if found.get(w) == old}
        self._proxies = found | same

    def _proxy(self, worker: Enrolment) -> WorkerProxy:
        url = self._tunnels.url(worker.id) or "" if worker.url == TUNNEL else worker.url
        return WorkerProxy(url, relay_token_from_digest(worker.digest), worker.address)

    def _apply(self) -> None:
        self._applied = True
        self._find_proxies()
        self._switchboard.update({model: self._from_here(there) for model, there in self._known.items()})

    def _from_here(self, there: ModelRoutes) -> ModelRoutes:
        """The routes as this gateway sees them: a worker whose tunnel ends at another gateway is out of reach."""
        if all(route.url != TUNNEL and route.worker in self._enrolled for route in there.routes):
            return there
        routes = (self._through_tunnel(route) for route in there.routes if route.worker in self._enrolled)
        return replace(there, routes=tuple(routes))

    def _through_tunnel(self, route: Route) -> Route:
        if route.url != TUNNEL:
            return route
        url = self._tunnels.url(route.worker)
        return replace(route, suspect=True) if url is None else replace(route, url=url)
