"""Keeps this gateway in touch with the manager: routes come in, demand goes out. Requests never wait for it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from turnout.domain.errors import Unavailable
from turnout.domain.serving import TUNNEL, DemandReport, ModelRoutes, Route, WorkerId
from turnout.gateway.chat.direct import DirectRoutes, WorkerProxy
from turnout.gateway.chat.switchboard import Switchboard
from turnout.observe import get_log
from turnout.ports.models import ModelStore
from turnout.ports.network import Tunnels
from turnout.ports.routes import DemandReports, RouteTable
from turnout.ports.workers import WorkerStore
from turnout.schemas.relay_tokens import relay_token_from_digest

_REPORT_S = 1.0
_RETRY_S = 0.5

log = get_log()


class RoutesFeed:
    """`name` is this gateway's, new for each process; `now` is the switchboard's clock."""

    def __init__(
        self,
        routes: RouteTable,
        demand: DemandReports,
        models: ModelStore,
        workers: WorkerStore,
        switchboard: Switchboard,
        tunnels: Tunnels,
        direct: DirectRoutes,
        name: str,
        now: Callable[[], float],
    ) -> None:
        self.name = name
        self._routes = routes
        self._demand = demand
        self._models = models
        self._workers = workers
        self._switchboard = switchboard
        self._tunnels = tunnels
        self._direct = direct
        self._now = now
        self._tokens: dict[WorkerId, str] = {}
        self._known: dict[str, ModelRoutes] = {}
        self._applied = False  # whether the switchboard has any routes yet
        tunnels.changed = self._apply

    def token(self, worker: WorkerId) -> str:
        """What the worker's proxy asks for; empty for a worker that is not known (yet)."""
        return self._tokens.get(worker, "")

    async def follow_routes(self) -> None:
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
                    await self._learn_tokens({r.worker for there in known.values() for r in there.routes})
                    self._apply()
                    self._direct.follow(self._proxies())
            except Unavailable as err:
                log.warning("routes lost", reason=err.message)  # the last ones serve on
            await asyncio.sleep(_RETRY_S)

    def _apply(self) -> None:
        """Gives the switchboard the routes as this gateway sees them: a worker whose tunnel ends at another gateway
        is out of reach."""
        self._applied = True
        self._switchboard.update({model: self._from_here(there) for model, there in self._known.items()})

    def _from_here(self, there: ModelRoutes) -> ModelRoutes:
        if all(route.url != TUNNEL for route in there.routes):
            return there
        return replace(there, routes=tuple(self._through_tunnel(route) for route in there.routes))

    def _through_tunnel(self, route: Route) -> Route:
        if route.url != TUNNEL:
            return route
        url = self._tunnels.url(route.worker)
        return replace(route, suspect=True) if url is None else replace(route, url=url)

    def _proxies(self) -> dict[WorkerId, WorkerProxy]:
        """Of the workers that can be called, and so may share a network with us."""
        return {
            route.worker: WorkerProxy(route.url, self.token(route.worker))
            for there in self._known.values()
            for route in there.routes
            if route.url != TUNNEL and not there.video
        }

    async def _learn_tokens(self, workers: set[WorkerId]) -> None:
        enrolments = await self._workers.enrolments(workers) if workers else {}
        self._tokens = {w: relay_token_from_digest(e.digest) for w, e in enrolments.items()}

    async def report_demand(self) -> None:
        while True:
            self._switchboard.changed.clear()
            reports = {
                model: DemandReport(demand.waiting, demand.running, max(0.0, self._now() - demand.asked_at))
                for model, demand in self._switchboard.demand().items()
            }
            try:
                await self._demand.report(self.name, reports)
            except Unavailable as err:
                log.warning("demand was not reported", reason=err.message)
            try:
                async with asyncio.timeout(_REPORT_S):
                    await self._switchboard.changed.wait()
            except TimeoutError:
                continue
