"""Keeps this gateway's switchboard in touch with the manager: routes come in, demand goes out. Nothing is asked for
per request."""

import asyncio
import secrets
from collections.abc import Callable

from turnout.domain.errors import Unavailable
from turnout.domain.serving import Ask, ModelRoutes, WorkerId
from turnout.gateway.switchboard import Switchboard
from turnout.observe import get_log
from turnout.ports import Registry
from turnout.wire.tokens import relay_token_from_digest

_REPORT_S = 1.0
_RETRY_S = 0.5

log = get_log()


class Lines:
    """`now` is the switchboard's clock."""

    def __init__(self, registry: Registry, board: Switchboard, now: Callable[[], float]) -> None:
        self._registry = registry
        self._board = board
        self._now = now
        self._name = f"gw-{secrets.token_hex(6)}"
        self._tokens: dict[WorkerId, str] = {}

    def token(self, worker: WorkerId) -> str:
        """What the worker's door asks for; empty for a worker that is not known (yet)."""
        return self._tokens.get(worker, "")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_routes(), name="routes")
            group.create_task(self._report_demand(), name="demand")

    async def _follow_routes(self) -> None:
        while True:
            known: dict[str, ModelRoutes] = {}
            try:
                async for changes in self._registry.tail_routes():
                    for model, routes in changes.items():
                        if routes is None:
                            known.pop(model, None)
                        else:
                            known[model] = routes
                    await self._learn_tokens({r.worker for there in known.values() for r in there.routes})
                    self._board.update(dict(known))
            except Unavailable as err:
                log.warning("routes lost", reason=err.message)  # the last ones serve on
            await asyncio.sleep(_RETRY_S)

    async def _learn_tokens(self, workers: set[WorkerId]) -> None:
        enrolments = await self._registry.enrolments(workers) if workers else {}
        self._tokens = {w: relay_token_from_digest(e.digest) for w, e in enrolments.items()}

    async def _report_demand(self) -> None:
        while True:
            self._board.changed.clear()
            asks = {
                model: Ask(seen.waiting, seen.running, max(0.0, self._now() - seen.asked_at))
                for model, seen in self._board.demand().items()
            }
            try:
                await self._registry.report_demand(self._name, asks)
            except Unavailable as err:
                log.warning("demand was not told", reason=err.message)
            try:
                async with asyncio.timeout(_REPORT_S):
                    await self._board.changed.wait()
            except TimeoutError:
                continue
