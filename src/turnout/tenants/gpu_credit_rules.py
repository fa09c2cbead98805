"""How much GPU time may be booked for a worker: the time that passed by the manager's own clock, on the devices that its
orders name. Pure.

A worker is believed for what its GPUs did, never for how long, and only about models that it was ordered to hold. What it
says beyond that is not a model's: it counts as free, up to the time of all its devices, and what is still more is dropped.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from turnout.fleet.machine_rules import Machine
from turnout.fleet.replica_rules import ReplicaOrder
from turnout.tenants.gpu_time_rules import GpuCell, GpuState

_CPU_DEVICE = -1
_MAX_DEVICES = 128  # of a machine: it says itself how many it has
_CARRIED_MS = (
    30_000.0  # a device; reports come late by this much at most, and then the next one seems too long
)

HeldDevices = Mapping[str, frozenset[int]]
"""The devices that orders name, by model."""


def devices_ordered(orders: Iterable[ReplicaOrder]) -> HeldDevices:
    found: dict[str, frozenset[int]] = {}
    for order in orders:
        found[order.model.name] = found.get(order.model.name, frozenset()) | (
            frozenset(order.gpus) or {_CPU_DEVICE}
        )
    return found


def devices_of(machine: Machine) -> frozenset[int]:
    return frozenset([gpu.index for gpu in machine.gpus][:_MAX_DEVICES]) or frozenset({_CPU_DEVICE})


def _all_of(held: HeldDevices) -> frozenset[int]:
    return frozenset[int]().union(*held.values())


@dataclass(slots=True)
class GpuCredit:
    """What may still be booked, in ms: of each model, of all models together (they may share a device), and of everything."""

    models: dict[str, float] = field(default_factory=dict[str, float])
    held: float = 0.0
    whole: float = 0.0

    def grow(self, ordered: HeldDevices, there: Collection[int], passed_s: float) -> None:
        """Time passed, with these orders and on a machine with these devices."""
        ms = 1000 * max(0.0, passed_s)
        for model, devices in ordered.items():
            self.models[model] = self.models.get(model, 0.0) + ms * len(devices)
        held = _all_of(ordered)
        self.held += ms * len(held)
        self.whole += ms * len(held.union(there))

    def spend(self, counted: Mapping[GpuCell, int]) -> dict[GpuCell, int]:
        """What to book of what a worker counted."""
        asked: Counter[str] = Counter()
        for cell, ms in counted.items():
            if cell.state is not GpuState.FREE:
                asked[cell.holder] += ms
        granted = {model: min(ms, self.models.get(model, 0.0)) for model, ms in asked.items()}
        shared = min(1.0, self.held / total) if (total := sum(granted.values())) else 0.0
        booked: Counter[GpuCell] = Counter()
        others: Counter[GpuCell] = Counter()  # by kind of GPU
        for cell, ms in counted.items():
            own = 0
            if cell.state is not GpuState.FREE:
                own = int(ms * (granted[cell.holder] * shared / asked[cell.holder]))
                booked[cell] += own
                self.models[cell.holder] = self.models.get(cell.holder, 0.0) - own
            others[GpuCell(GpuState.FREE, cell.gpu, "")] += ms - own
        self.held -= booked.total()
        self.whole -= booked.total()
        part = min(1.0, max(0.0, self.whole) / others.total()) if others.total() else 0.0
        free = {cell: int(ms * part) for cell, ms in others.items()}
        self.whole -= sum(free.values())
        booked.update(free)
        return {cell: ms for cell, ms in booked.items() if ms > 0}

    def carry(self, ordered: HeldDevices, there: Collection[int]) -> None:
        """After a report: what it left is kept for the next one up to a bound, and only of models that are ordered still."""
        held = _all_of(ordered)
        self.models = {
            model: min(max(0.0, self.models.get(model, 0.0)), _CARRIED_MS * len(devices))
            for model, devices in ordered.items()
        }
        self.held = min(max(0.0, self.held), _CARRIED_MS * len(held))
        self.whole = min(max(0.0, self.whole), _CARRIED_MS * len(held.union(there)))
