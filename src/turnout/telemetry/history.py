"""Writes down what this gateway sees, every half minute, for the plots of the page: bounded, in Redis, without names."""

import asyncio
import itertools
from collections.abc import Callable, Mapping

from turnout.errors import Unavailable
from turnout.fleet.fleet_store import FleetStatus
from turnout.fleet.worker_store import OrderStore, WorkerStore
from turnout.tasks.backlog import Backlog
from turnout.telemetry.history_store import HistoryStore
from turnout.telemetry.log import get_log

STEP_S = 30
KEPT_MINUTES = 24 * 60
_MAX_POINTS = 720
_MEANS = ("step_seconds", "first_token_seconds")
_GAUGES = ("queue_length", "gpus_busy", "gpus_idle")
COLUMNS = (*_GAUGES, *_MEANS, "wakes")

log = get_log()


class History:
    """`totals` tells for each mean how many values there were ever, and their sum. Every gateway adds what it saw: all see
    every step, and the mean of the same values twice is the same mean."""

    def __init__(
        self,
        store: HistoryStore,
        backlog: Backlog,
        fleet: FleetStatus,
        workers: WorkerStore,
        orders: OrderStore,
        totals: Callable[[], Mapping[str, tuple[int, float]]],
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._backlog = backlog
        self._fleet = fleet
        self._workers = workers
        self._orders = orders
        self._totals = totals
        self._now = now
        self._before = totals()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STEP_S - self._now() % STEP_S)
            try:
                await self.write()
            except Unavailable as err:
                log.warning("figures for the page's history not written", reason=err.message)

    async def write(self) -> None:
        """Of the interval that has just ended."""
        interval = round(self._now() / STEP_S) - 1
        totals = self._totals()
        sums = {
            f"{name}:{what}": after - before
            for name, pair in totals.items()
            for what, after, before in zip(
                ("count", "sum"), pair, self._before.get(name, (0, 0.0)), strict=True
            )
            if after > before
        }
        gauges = {**await self._gpus(), "queue_length": await self._waiting(), "woken": await self._woken()}
        await self._store.add(interval, gauges, sums)
        self._before = totals

    async def read(self, minutes: int) -> tuple[list[int], dict[str, list[float | None]]]:
        """(when each interval began, its figures by column): the oldest first, at most `_MAX_POINTS`."""
        last = int(self._now() // STEP_S)
        count = minutes * 60 // STEP_S
        every = -(-count // _MAX_POINTS)
        # One before the first, because wakes are told by a counter.
        intervals = list(range(last - count - every, last, every))
        found = await self._store.read(intervals)
        columns: dict[str, list[float | None]] = {name: [] for name in COLUMNS}
        for before, one in itertools.pairwise(found):
            for name in _GAUGES:
                columns[name].append(one.get(name))
            for name in _MEANS:
                counted = one.get(f"{name}:count")
                columns[name].append(one.get(f"{name}:sum", 0.0) / counted if counted else None)
            known = "woken" in one and "woken" in before
            columns["wakes"].append(max(0.0, one["woken"] - before["woken"]) if known else None)
        return [interval * STEP_S for interval in intervals[1:]], columns

    async def _waiting(self) -> int:
        return sum([(await self._backlog.figures(model)).length for model in await self._backlog.models()])

    async def _woken(self) -> int:
        """Replicas ever started or woken."""
        counts = (await self._fleet.figures()).decision_counts
        return sum(count for name, count in counts.items() if name.startswith(("start:", "wake:")))

    async def _gpus(self) -> dict[str, int]:
        """A GPU is busy when a replica on it is."""
        total = busy = 0
        for worker, heartbeat in (
            await self._workers.heartbeats(list(await self._workers.enrolments()))
        ).items():
            total += len(heartbeat.machine.gpus)
            working = {report.id for report in heartbeat.reports if report.busy}
            sheet = await self._orders.get(worker) if working else None
            busy += len(
                {gpu for order in sheet.orders if order.replica in working for gpu in order.gpus}
                if sheet
                else ()
            )
        return {"gpus_busy": busy, "gpus_idle": total - busy}
