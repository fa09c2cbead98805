"""The gangs that are awake: those that workers run, as their heartbeats and orders tell, and those that report from Ray.

An answer is kept for a moment, and asked for once at a time, so that nobody can load Redis by asking.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from turnout.fleet.fleet_rules import Rules
from turnout.fleet.gang_reports import GangReports
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import EngineKind
from turnout.fleet.replica_rules import Phase
from turnout.fleet.worker_rules import Enrolment, OrderSheet, Standing, StoredHeartbeat
from turnout.fleet.worker_store import OrderStore, WorkerStore

_KEEP_S = 1.0
_AWAKE = frozenset({Phase.STARTING, Phase.READY})


@dataclass(frozen=True, slots=True)
class AwakeGang:
    """`nodes` are the machines that its ranks are known to be on."""

    id: str
    model: str
    formed: bool
    ranks: int
    nodes: frozenset[str]


def awake_gangs(
    on_ray: Iterable[GangReport],
    heartbeats: Mapping[WorkerId, StoredHeartbeat],
    sheets: Mapping[WorkerId, OrderSheet],
) -> list[AwakeGang]:
    """A worker reports phases; which of its replicas are gangs, and of which model, stands in its orders."""
    found = [
        AwakeGang(
            gang.gang,
            gang.model,
            gang.formed,
            len(gang.ranks),
            frozenset(rank.node for rank in gang.ranks if rank.node),
        )
        for gang in on_ray
    ]
    for worker, sheet in sheets.items():
        phases = {r.id: r.phase for r in heartbeats[worker].reports if r.phase in _AWAKE}
        found += [
            AwakeGang(
                order.replica,
                order.model.name,
                phases[order.replica] is Phase.READY,
                order.model.video.ranks,
                frozenset({worker}),
            )
            for order in sheet.orders
            if order.replica in phases and order.model.video is not None
        ]
    return sorted(found, key=lambda gang: gang.id)


@dataclass(frozen=True, slots=True)
class FleetLook:
    """The workers and gangs that there were a moment ago."""

    enrolments: Mapping[WorkerId, Enrolment]
    heartbeats: Mapping[WorkerId, StoredHeartbeat]
    gangs: Sequence[AwakeGang]


class GangList:
    """`rules` are the manager's: they say when a worker is gone."""

    def __init__(
        self,
        on_ray: GangReports,
        workers: WorkerStore,
        orders: OrderStore,
        rules: Rules,
        now: Callable[[], float],
    ) -> None:
        self.rules = rules
        self._on_ray = on_ray
        self._workers = workers
        self._orders = orders
        self._now = now
        self._asking = asyncio.Lock()
        self._kept: tuple[float, FleetLook] | None = None

    async def awake(self) -> Sequence[AwakeGang]:
        """Raises Unavailable."""
        return (await self.look()).gangs

    async def look(self) -> FleetLook:
        """Raises Unavailable."""
        async with self._asking:
            if self._kept is None or self._now() - self._kept[0] >= _KEEP_S:
                self._kept = (self._now(), await self._ask())
        return self._kept[1]

    async def _ask(self) -> FleetLook:
        on_ray = (await self._on_ray.all()).values()
        enrolments = await self._workers.enrolments()
        heartbeats = await self._workers.heartbeats(list(enrolments))
        sheets: dict[WorkerId, OrderSheet] = {}
        for worker, beat in heartbeats.items():
            if self._may_have_gangs(beat) and (sheet := await self._orders.get(worker)) is not None:
                sheets[worker] = sheet
        return FleetLook(enrolments, heartbeats, awake_gangs(on_ray, heartbeats, sheets))

    def _may_have_gangs(self, beat: StoredHeartbeat) -> bool:
        return (
            EngineKind.VIDEO in beat.machine.engines
            and any(report.phase in _AWAKE for report in beat.reports)
            and self.rules.standing(beat.ago_s) is not Standing.GONE
        )
