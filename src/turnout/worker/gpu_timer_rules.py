"""Counts what each GPU of this machine does: for which model it is busy, loading, idle or asleep, or that it is free. Pure.

Every moment of a GPU is counted once. Replicas that share one divide it by the memory that they are promised there. One
that is asleep has given its memory back, so it counts only where no other replica is awake. A machine without GPUs is one
device of the kind `cpu`, and so is what holds replicas without GPUs beside some.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from turnout.fleet.machine_rules import Machine
from turnout.fleet.model_rules import Model
from turnout.fleet.placement_rules import needs_on
from turnout.fleet.replica_rules import ReplicaId
from turnout.tenants.gpu_time_rules import CPU, GpuCell, GpuReport, GpuState, gpu_kind

_CPU_DEVICE = -1
_MAX_CELLS = 1_000
_OTHERS = "(others)"  # models beyond those: a worker that runs for months may have seen very many


@dataclass(frozen=True, slots=True)
class _Holding:
    state: GpuState
    model: Model


@dataclass(slots=True)
class _Device:
    """`there`: the machine has it. `since`: up to when it was counted."""

    kind: str
    since: float
    there: bool = False
    holdings: dict[ReplicaId, _Holding] = field(default_factory=dict[ReplicaId, _Holding])


class GpuTimer:
    """`now` is a clock that never steps back; if it does, that time is not counted."""

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._now = 0.0
        self._machine = Machine((), 0, 0)
        self._devices: dict[int, _Device] = {}
        self._seconds: dict[str, float] = {}

    def see(self, machine: Machine, now: float) -> None:
        """What the machine has: the GPUs that are free without a replica, and of which kind they are."""
        self._machine = machine
        kinds = {gpu.index: gpu_kind(gpu.name) for gpu in machine.gpus} or {_CPU_DEVICE: CPU}
        for index, kind in kinds.items():
            device = self._counted(index, now)
            device.kind, device.there = kind, True
        for index in self._devices.keys() - kinds.keys():
            self._counted(index, now).there = False
        self._devices = {i: d for i, d in self._devices.items() if d.there or d.holdings}

    def hold(
        self,
        replica: ReplicaId,
        model: Model,
        gpus: Iterable[int],
        state: GpuState | None,
        now: float,
    ) -> None:
        """From now on the replica holds its GPUs like this; None: no more."""
        for index in tuple(gpus) or (_CPU_DEVICE,):
            device = self._counted(index, now)
            if state is None:
                device.holdings.pop(replica, None)
            else:
                device.holdings[replica] = _Holding(state, model)

    def report(self, now: float) -> GpuReport:
        for index in self._devices:
            self._counted(index, now)
        return GpuReport(self._epoch, {name: int(1000 * s) for name, s in self._seconds.items()})

    def _counted(self, index: int, now: float) -> _Device:
        """The device, with everything before `now` counted."""
        self._now = max(self._now, now)
        device = self._devices.get(index)
        if device is None:
            device = self._devices[index] = _Device(CPU if index == _CPU_DEVICE else gpu_kind(""), self._now)
        passed_s, device.since = self._now - device.since, self._now
        if passed_s:
            awake = [h for h in device.holdings.values() if h.state is not GpuState.ASLEEP]
            holders = awake or list(device.holdings.values())
            shares = [self._share(index, holding.model) for holding in holders]
            for holding, share in zip(holders, shares, strict=True):
                self._add(holding.state, device.kind, holding.model.name, passed_s * share / sum(shares))
            if not holders and device.there:
                self._add(GpuState.FREE, device.kind, "", passed_s)
        return device

    def _share(self, index: int, model: Model) -> int:
        needs = needs_on(model, self._machine)
        return max(1, needs.memory_bytes if index == _CPU_DEVICE else needs.gpu_memory_bytes)

    def _add(self, state: GpuState, kind: str, model: str, seconds: float) -> None:
        name = GpuCell(state, kind, model).name
        if name not in self._seconds and len(self._seconds) >= _MAX_CELLS:
            name = GpuCell(state, kind, _OTHERS).name
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
