"""Where GPU time went: each GPU of a machine that is paid for is busy, loading or idle, and all of it is counted."""

from dataclasses import dataclass, field
from enum import IntEnum

from turnout.plan.scenario import MachineKind


class GpuUse(IntEnum):
    """A GPU that does several things counts as the last of them."""

    IDLE = 0
    LOADING = 1
    BUSY = 2


@dataclass(slots=True)
class GpuSeconds:
    """What was paid and what became of it, up to the horizon. A machine without GPUs counts as one device."""

    by_use: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    paid: float = 0.0
    machine_s: float = 0.0
    cost: float = 0.0
    joules: float = 0.0


class GpuMeter:
    """Adds up what `MachineMeter`s report."""

    def __init__(self, horizon_s: float) -> None:
        self.horizon_s = horizon_s
        self.spent = GpuSeconds()

    def count(self, kind: MachineKind, use: GpuUse, since: float, until: float) -> None:
        seconds = max(0.0, min(until, self.horizon_s) - since)
        self.spent.by_use[use] += seconds
        self.spent.joules += seconds * (kind.watts if use is GpuUse.BUSY else kind.idle_watts)

    def pay(self, kind: MachineKind, since: float, until: float) -> None:
        seconds = max(0.0, min(until, self.horizon_s) - since)
        self.spent.machine_s += seconds
        self.spent.paid += seconds * devices(kind)
        self.spent.cost += seconds / 3600 * kind.price_an_hour


def devices(kind: MachineKind) -> int:
    return max(1, kind.gpus)


class MachineMeter:
    """One machine's devices. It loads from the moment it is asked for until it has booted."""

    def __init__(self, meter: GpuMeter, kind: MachineKind, now: float) -> None:
        self._meter = meter
        self._kind = kind
        self._paid_since = now
        count = devices(kind)
        self._busy = [0] * count
        self._loading = [1] * count
        self._since = [now] * count
        self._ended = False

    def booted(self, now: float) -> None:
        for device in range(len(self._since)):
            self.change(device, now, loading=-1)

    def change(self, device: int, now: float, busy: int = 0, loading: int = 0) -> None:
        before = self._use(device)
        self._busy[device] += busy
        self._loading[device] += loading
        if self._use(device) is not before and not self._ended:
            self._meter.count(self._kind, before, self._since[device], now)
            self._since[device] = now

    def end(self, now: float) -> None:
        """It is paid no longer; what changes afterwards does not count."""
        self._ended = True
        for device, since in enumerate(self._since):
            self._meter.count(self._kind, self._use(device), since, now)
        self._meter.pay(self._kind, self._paid_since, now)

    def _use(self, device: int) -> GpuUse:
        if self._busy[device]:
            return GpuUse.BUSY
        return GpuUse.LOADING if self._loading[device] else GpuUse.IDLE
