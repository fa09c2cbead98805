"""Tells the manager what this gateway sees of each model: requests that wait and that run. Requests never wait for it."""

import asyncio
from collections.abc import Callable

from turnout.chat.switchboard import Switchboard
from turnout.errors import Unavailable
from turnout.fleet.route_rules import DemandReport
from turnout.fleet.route_table import DemandReports
from turnout.telemetry.log import get_log

_REPORT_S = 1.0

log = get_log()


class DemandFeed:
    """`gateway` is this one's name, new for each process; `now` is the switchboard's clock."""

    def __init__(
        self, gateway: str, demand: DemandReports, switchboard: Switchboard, now: Callable[[], float]
    ) -> None:
        self._gateway = gateway
        self._demand = demand
        self._switchboard = switchboard
        self._now = now

    async def run(self) -> None:
        while True:
            self._switchboard.changed.clear()
            reports = {
                model: DemandReport(demand.waiting, demand.running, max(0.0, self._now() - demand.asked_at))
                for model, demand in self._switchboard.demand().items()
            }
            try:
                await self._demand.report(self._gateway, reports)
            except Unavailable as err:
                log.warning("demand was not reported", reason=err.message)
            try:
                async with asyncio.timeout(_REPORT_S):
                    await self._switchboard.changed.wait()
            except TimeoutError:
                continue
