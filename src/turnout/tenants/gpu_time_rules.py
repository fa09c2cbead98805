"""Where the time of GPUs went: counts in milliseconds that only grow, named `state:kind of GPU:model`. Pure.

Whoever holds GPUs counts by itself and reports the whole; the manager books what a report has beyond the last one that it
booked. So a report that is lost, repeated or late changes nothing, and a manager that is away loses nothing.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from turnout.fleet.machine_rules import WorkerId

CPU = "cpu"
"""The kind of a machine without GPUs: it counts as one device."""
_MAX_NAME = 240
_MAX_MS = 2**52


class GpuState(StrEnum):
    """What a GPU does. Held by a model, it is one of the first four; `FREE` is a worker's GPU that no model holds."""

    BUSY = "busy"
    LOADING = "loading"
    IDLE = "idle"
    ASLEEP = "asleep"
    FREE = "free"


HELD = tuple(state for state in GpuState if state is not GpuState.FREE)
_STATES = {state.value: state for state in GpuState}


class GpuCell(NamedTuple):
    """What one count is of. `holder` is a model, or in the table of workers a worker; empty for a free GPU's model. `name` is how it is
    stored and sent, `cell_of` reads that."""

    state: GpuState
    gpu: str
    holder: str

    @property
    def name(self) -> str:
        return f"{self.state}:{self.gpu}:{self.holder}"

    def on(self, day: str) -> str:
        """How it is named among several days'."""
        return f"{day}:{self.name}"


def gpu_kind(name: str) -> str:
    """A GPU's name as the kind that is counted and priced."""
    return " ".join(name.replace(":", " ").split())[:64] or "gpu"


def cell_of(name: str) -> GpuCell | None:
    """None for a name that is none of ours."""
    state, _, rest = name.partition(":")
    gpu, colon, holder = rest.partition(":")
    known = _STATES.get(state)
    if known is None or not colon or len(name) > _MAX_NAME or not name.isprintable():
        return None
    return GpuCell(known, gpu, holder)


def cells_of(counts: Mapping[str, int]) -> dict[GpuCell, int]:
    """Those that are ours."""
    return {cell: ms for name, ms in counts.items() if (cell := cell_of(name)) is not None}


@dataclass(frozen=True, slots=True)
class GpuReport:
    """All that one process counted since it began; `epoch` is new for each process."""

    epoch: str
    counts: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class BookedReport:
    """The report of a worker that was booked last, and what may still be booked (`gpu_credit_rules`) by the manager's clock `at`;
    None if it was booked before there was a bound."""

    epoch: str
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    at: float | None = None
    models_ms: Mapping[str, float] = field(default_factory=dict[str, float])
    held_ms: float = 0.0
    whole_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuBooking:
    """GPU time to be added to a day's tables: ms by the worker that counted it and what it is of. `reports` are those that it was
    booked from; None for a worker that is no more."""

    day: str
    reports: Mapping[WorkerId, BookedReport | None]
    booked: Mapping[tuple[str, GpuCell], int]

    @property
    def by_model(self) -> Mapping[GpuCell, int]:
        found: Counter[GpuCell] = Counter()
        for (_, cell), ms in self.booked.items():
            found[cell] += ms
        return found


def unbooked(report: GpuReport, booked: GpuReport | None) -> dict[GpuCell, int]:
    """What was counted since the report that was booked last. A process that was never seen begins with what it reports: if it
    is an old one, and what was booked of it was lost, nothing is booked twice."""
    if booked is None:
        return {}
    before = booked.counts if booked.epoch == report.epoch else dict[str, int]()
    return {
        cell: ms - before.get(name, 0)
        for name, ms in report.counts.items()
        if before.get(name, 0) < ms <= _MAX_MS and (cell := cell_of(name)) is not None
    }
