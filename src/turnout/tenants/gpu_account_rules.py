"""Books where the time of GPUs went: what workers counted beyond what was booked before, and the time of gangs that others
run, as they report. Pure.

What is booked is published together with the reports that it was booked from. A manager that dies in between has booked
nothing, and the next one books it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from turnout.fleet.gang_rules import GangReport
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model
from turnout.fleet.worker_rules import StoredHeartbeat
from turnout.tasks.task_rules import GangId
from turnout.tenants.gpu_time_rules import CPU, GpuBooking, GpuCell, GpuReport, GpuState, gpu_kind, unbooked

_OTHERS = "(others)"
_UNPLACED = "(unplaced)"  # ranks that have no machine yet
_MAX_KINDS = 64
_NEW_S = 5.0  # a gang that is seen for the first time and is older was seen by an earlier manager


@dataclass(slots=True)
class GpuAccounts:
    """`seen` are the reports that were booked, or will be with what is due. Names that workers send count only if they are
    registered models', and only so many kinds of GPUs: the tables stay as small as the fleet is."""

    seen: dict[WorkerId, GpuReport]
    _gangs: dict[GangId, float] = field(default_factory=dict[GangId, float])
    _models: set[str] = field(default_factory=lambda: {""})
    _kinds: set[str] = field(default_factory=lambda: {CPU})
    _changed: dict[WorkerId, GpuReport | None] = field(default_factory=dict[WorkerId, GpuReport | None])
    _by_model: Counter[GpuCell] = field(default_factory=Counter[GpuCell])
    _by_worker: Counter[GpuCell] = field(default_factory=Counter[GpuCell])

    def know_models(self, names: Iterable[str]) -> None:
        self._models.update(names)

    def hear(self, heartbeats: Mapping[WorkerId, StoredHeartbeat]) -> None:
        for worker, beat in heartbeats.items():
            report, before = beat.gpu_time, self.seen.get(worker)
            if report is None or report == before:
                continue
            for cell, ms in unbooked(report, before).items():
                self._add(cell, worker, ms)
            self.seen[worker] = self._changed[worker] = report

    def forget_all_but(self, enrolled: Collection[WorkerId]) -> None:
        for worker in self.seen.keys() - enrolled:
            del self.seen[worker]
            self._changed[worker] = None

    def see_gangs(
        self, gangs: Iterable[GangReport], models: Mapping[str, Model], held: Mapping[GangId, int]
    ) -> None:
        """Counts from report to report, by the clock that gives reports their time: a gang that says nothing more holds nothing
        more. A gang has one GPU for each rank; on CPUs, each of its machines is one device."""
        before, self._gangs = self._gangs, {}
        for gang in gangs:
            model = models.get(gang.model)
            if model is None or model.video is None:
                continue
            self._gangs[gang.gang] = gang.at
            age_s = gang.at - gang.since
            ms = int(1000 * (gang.at - before.get(gang.gang, gang.since if age_s <= _NEW_S else gang.at)))
            state = GpuState.BUSY if held.get(gang.gang) else GpuState.IDLE
            if gang.ready_at is None:
                state = GpuState.LOADING
            places = [(rank.node or rank.address, gpu_kind(rank.gpu)) for rank in gang.ranks]
            places += [("", gpu_kind(""))] * (model.video.ranks - len(places))
            if model.video.device == CPU:
                places = [(node, CPU) for node in sorted({node for node, _ in places})]
            for node, kind in places:
                self._add(GpuCell(state, kind, gang.model), node or _UNPLACED, max(0, ms))

    def due(self, day: str) -> GpuBooking | None:
        """What is to be published now; it counts as booked then."""
        if not self._changed and not self._by_model:
            return None
        due = GpuBooking(day, self._changed, self._by_model, self._by_worker)
        self._changed, self._by_model, self._by_worker = {}, Counter(), Counter()
        return due

    def _add(self, cell: GpuCell, where: str, ms: int) -> None:
        if ms <= 0:
            return
        if len(self._kinds) < _MAX_KINDS:
            self._kinds.add(cell.gpu)
        kind = cell.gpu if cell.gpu in self._kinds else gpu_kind("")
        model = cell.holder if cell.holder in self._models else _OTHERS
        self._by_model[GpuCell(cell.state, kind, model)] += ms
        self._by_worker[GpuCell(cell.state, kind, where)] += ms
