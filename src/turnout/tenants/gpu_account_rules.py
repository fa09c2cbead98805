"""Books where the time of GPUs went: what workers counted beyond what was booked before, as far as it can be true, and the
time of gangs that others run, as they report. Pure.

What is booked is published together with the reports that it was booked from. A manager that dies in between has booked
nothing, and the next one books it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from turnout.fleet.gang_rules import GangReport
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model
from turnout.fleet.replica_rules import ReplicaOrder
from turnout.fleet.worker_rules import StoredHeartbeat
from turnout.tasks.task_rules import GangId
from turnout.tenants.gpu_credit_rules import GpuCredit, HeldDevices, devices_of, devices_ordered
from turnout.tenants.gpu_time_rules import (
    CPU,
    BookedReport,
    GpuBooking,
    GpuCell,
    GpuReport,
    GpuState,
    gpu_kind,
    unbooked,
)

_UNPLACED = "(unplaced)"  # ranks that have no machine yet
_MAX_KINDS = 64
_NEW_S = 5.0  # a gang that is seen for the first time and is older was seen by an earlier manager


@dataclass(slots=True)
class _WorkerAccount:
    """A worker's last report that was booked, and the credit that it had `at` then."""

    at: float
    report: GpuReport | None = None
    ordered: HeldDevices = field(default_factory=dict[str, frozenset[int]])
    there: frozenset[int] = frozenset()
    credit: GpuCredit = field(default_factory=GpuCredit)

    def grow(self, now: float) -> None:
        self.credit.grow(self.ordered, self.there, now - self.at)
        self.at = now

    def stored(self) -> BookedReport | None:
        credit = self.credit
        return self.report and BookedReport(
            self.report.epoch, self.report.counts, self.at, credit.models, credit.held, credit.whole
        )


@dataclass(slots=True)
class GpuAccounts:
    """`now` is one clock for all calls, and one that goes on with the next manager's. Only so many kinds of GPUs count: the
    tables stay as small as the fleet is."""

    _workers: dict[WorkerId, _WorkerAccount] = field(default_factory=dict[WorkerId, _WorkerAccount])
    _gangs: dict[GangId, float] = field(default_factory=dict[GangId, float])
    _kinds: set[str] = field(default_factory=lambda: {CPU})
    _changed: set[WorkerId] = field(default_factory=set[WorkerId])
    _booked: Counter[tuple[str, GpuCell]] = field(default_factory=Counter[tuple[str, GpuCell]])

    def take_over(
        self,
        saved: Mapping[WorkerId, BookedReport],
        ordered: Mapping[WorkerId, Iterable[ReplicaOrder]],
        now: float,
    ) -> None:
        """As the last manager left them, with the orders that stand since. What a worker counted meanwhile is bounded like the
        rest: by the time that passed."""
        for worker, one in saved.items():
            self._workers[worker] = _WorkerAccount(
                now if one.at is None else one.at,
                GpuReport(one.epoch, one.counts),
                devices_ordered(ordered.get(worker, ())),
                credit=GpuCredit(dict(one.models_ms), one.held_ms, one.whole_ms),
            )

    def order(self, worker: WorkerId, orders: Iterable[ReplicaOrder], now: float) -> None:
        """From now on the worker should have these, and nothing else. The time before counts for those that it had to have."""
        account = self._account(worker, now)
        account.grow(now)
        account.ordered = devices_ordered(orders)
        self._changed.add(worker)

    def hear(self, heartbeats: Mapping[WorkerId, StoredHeartbeat], now: float) -> None:
        for worker, beat in heartbeats.items():
            account = self._account(worker, now)
            report, account.there = beat.gpu_time, devices_of(beat.machine)
            account.grow(now)
            if report is None or report == account.report:
                continue
            for cell, ms in account.credit.spend(unbooked(report, account.report)).items():
                self._add(cell, worker, ms)
            account.credit.carry(account.ordered, account.there)
            account.report = report
            self._changed.add(worker)

    def forget_all_but(self, enrolled: Collection[WorkerId]) -> None:
        for worker in self._workers.keys() - enrolled:
            del self._workers[worker]
            self._changed.add(worker)

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
        if not self._changed and not self._booked:
            return None
        accounts = {worker: self._workers.get(worker) for worker in self._changed}
        reports = {worker: account.stored() if account else None for worker, account in accounts.items()}
        due = GpuBooking(day, reports, self._booked)
        self._changed, self._booked = set(), Counter()
        return due

    def _account(self, worker: WorkerId, now: float) -> _WorkerAccount:
        return self._workers.setdefault(worker, _WorkerAccount(now))

    def _add(self, cell: GpuCell, where: str, ms: int) -> None:
        if ms <= 0:
            return
        if len(self._kinds) < _MAX_KINDS:
            self._kinds.add(cell.gpu)
        kind = cell.gpu if cell.gpu in self._kinds else gpu_kind("")
        self._booked[where, cell._replace(gpu=kind)] += ms
