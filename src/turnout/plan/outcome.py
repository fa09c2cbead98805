"""What a simulated run showed: waits, starts, GPU time, cost; and how these went over time."""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnout.plan.gpu_meter import GpuSeconds, GpuUse

BUCKETS = 240
_MAX_LOST = 0.001  # share of requests that may be refused, fail or not end


class TimeSeries:
    """The mean of a figure in each of `BUCKETS` equal parts of the time; kept for each name apart."""

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._width_s = horizon_s / BUCKETS
        self._now: dict[str, tuple[float, float]] = {}  # the value, and since when
        self._sums: dict[str, list[float]] = {}

    def add(self, name: str, by: float, now: float) -> None:
        value, since = self._now.get(name, (0.0, 0.0))
        if value and since < self._horizon_s:
            self._spread(name, value, since, min(now, self._horizon_s))
        self._now[name] = (value + by, now)

    def means(self, until: float) -> dict[str, list[float]]:
        for name in self._now:
            self.add(name, 0.0, until)
        return {name: [total / self._width_s for total in sums] for name, sums in self._sums.items()}

    def _spread(self, name: str, value: float, since: float, until: float) -> None:
        sums = self._sums.get(name)
        if sums is None:
            sums = self._sums[name] = [0.0] * BUCKETS
        first, last = int(since / self._width_s), min(BUCKETS - 1, int(until / self._width_s))
        if first >= last:
            sums[last] += value * (until - since)
            return
        sums[first] += value * ((first + 1) * self._width_s - since)
        for bucket in range(first + 1, last):
            sums[bucket] += value * self._width_s
        sums[last] += value * (until - last * self._width_s)


@dataclass(slots=True)
class RunCounts:
    """What is counted while the world runs; `decisions` are the manager's looks."""

    requests: int = 0
    served: int = 0
    refused: int = 0
    failed: int = 0
    unfinished: int = 0
    videos: int = 0
    tokens: int = 0
    cold_starts: int = 0
    wakes: int = 0
    evictions: int = 0
    events: int = 0
    decisions: int = 0

    @property
    def lost(self) -> int:
        return self.refused + self.failed + self.unfinished


@dataclass(slots=True)
class Measurements:
    """The counts, and by model one wait for each request that was begun, and when each of the others came (`unserved`)."""

    counts: RunCounts = field(default_factory=RunCounts)
    waits: "defaultdict[str, array[float]]" = field(default_factory=lambda: defaultdict(_floats))
    unserved: "defaultdict[str, array[float]]" = field(default_factory=lambda: defaultdict(_floats))

    def waits_until(self, end: float) -> "dict[str, array[float]]":
        """All waits by model; whoever was never served has waited to the end."""
        waits = {name: array("d", own) for name, own in self.waits.items()}
        for name, came in self.unserved.items():
            waits.setdefault(name, _floats()).extend(max(0.0, end - at) for at in came)
        return waits


def _floats() -> "array[float]":
    return array("d")


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed; 0 when there are none."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * round(share * 1000) // 1000)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


@dataclass(frozen=True, slots=True)
class Waits:
    """How long requests waited until they were begun, in seconds; those that never were, to the end of the run."""

    count: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    max_s: float

    @staticmethod
    def of(values: Sequence[float]) -> "Waits":
        ordered = sorted(values)
        mean = sum(ordered) / len(ordered) if ordered else 0.0
        p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
        return Waits(len(ordered), mean, p50, p95, p99, ordered[-1] if ordered else 0.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mode's figures. `waits_of` has each model's waits, `distribution` the wait of every hundredth of the requests, shortest first; `queue` and
    `held` are means over equal parts of the time, the latter of GPUs by model. `video_share` is the video models' part of
    the GPU time that models held; the cost is split by it."""

    mode: str
    days: float
    counts: RunCounts
    waits: Waits
    by_model: Mapping[str, Waits]
    gpu: GpuSeconds
    video_share: float
    ready_share: Mapping[str, float]
    waits_of: Mapping[str, Sequence[float]]
    distribution: Sequence[float]
    queue: Sequence[float]
    held: Mapping[str, Sequence[float]]
    machines: Sequence[float]

    @property
    def unserved(self) -> bool:
        """Whether so many requests were refused, failed or did not end that the other figures say little."""
        return self.counts.lost > _MAX_LOST * self.counts.requests

    @property
    def cost_a_day(self) -> float:
        return self.gpu.cost / self.days

    @property
    def busy_share(self) -> float:
        return self.gpu.by_use[GpuUse.BUSY] / self.gpu.paid if self.gpu.paid else 0.0

    @property
    def cost_a_video(self) -> float | None:
        return self.gpu.cost * self.video_share / self.counts.videos if self.counts.videos else None

    @property
    def cost_a_million_tokens(self) -> float | None:
        return (
            self.gpu.cost * (1 - self.video_share) / self.counts.tokens * 1e6 if self.counts.tokens else None
        )

    @property
    def kwh_a_day(self) -> float:
        return self.gpu.joules / 3.6e6 / self.days
