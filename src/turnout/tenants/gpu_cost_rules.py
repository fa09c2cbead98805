"""What GPU time cost, and who pays for it. Pure.

A model's GPU time of a day, whatever it was (busy, loading, idle, asleep), is divided among the tenants that used the model
that day, by the time that their requests and attempts were at work on it. If nobody used it, the service pays: that is the
row of no tenant. So the parts of all add up to what was held.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from turnout.tasks.task_rules import TenantId
from turnout.tenants.gpu_time_rules import CPU, HELD, GpuCell
from turnout.tenants.usage_rules import UsageRow, Used, added

SERVICE = TenantId("")
"""Who pays for what no tenant used."""
_ALL = "*"


@dataclass(frozen=True, slots=True)
class ByState:
    """Seconds of GPUs, or what they cost, by what the GPUs did."""

    busy: float = 0.0
    loading: float = 0.0
    idle: float = 0.0
    asleep: float = 0.0
    free: float = 0.0

    @property
    def held(self) -> float:
        return sum(getattr(self, state) for state in HELD)

    @property
    def unused(self) -> float:
        """Paid for, and of no use to anyone."""
        return self.idle + self.asleep + self.free

    def plus(self, other: "ByState") -> "ByState":
        return ByState(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def part(self, share: float) -> "ByState":
        return ByState(*(getattr(self, f.name) * share for f in fields(self)))


@dataclass(frozen=True, slots=True)
class GpuBill:
    seconds: ByState = ByState()
    cost: ByState = ByState()

    def plus(self, other: "GpuBill") -> "GpuBill":
        return GpuBill(self.seconds.plus(other.seconds), self.cost.plus(other.cost))

    def part(self, share: float) -> "GpuBill":
        return GpuBill(self.seconds.part(share), self.cost.part(share))


def price_of(prices: Mapping[str, float], kind: str) -> float:
    """What an hour of such a GPU costs: by the longest name in `prices` that its own contains (`H100` for NVIDIA H100 PCIe), else
    by `*`. A machine without GPUs costs what `cpu` says."""
    if kind == CPU:
        return prices.get(CPU, 0.0)
    named = [name for name in prices if name not in (CPU, _ALL) and name.lower() in kind.lower()]
    return prices[max(named, key=len)] if named else prices.get(_ALL, 0.0)


def bills(counts: Mapping[GpuCell, int], prices: Mapping[str, float]) -> dict[str, GpuBill]:
    """By model, or by worker; what is free has no model."""
    found: defaultdict[str, GpuBill] = defaultdict(GpuBill)
    for cell, ms in counts.items():
        seconds = ByState(**{cell.state.value: ms / 1000})
        bill = GpuBill(seconds, seconds.part(price_of(prices, cell.gpu) / 3600))
        found[cell.holder] = found[cell.holder].plus(bill)
    return dict(found)


@dataclass(frozen=True, slots=True)
class GpuDay:
    """A day's tables: ms by model, by worker, and the time for which tenants had each model at work."""

    day: str
    by_model: Mapping[GpuCell, int] = field(default_factory=dict[GpuCell, int])
    by_worker: Mapping[GpuCell, int] = field(default_factory=dict[GpuCell, int])
    work_ms: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Charge:
    """What a tenant used of a model on a day, and its part of the model's GPU time."""

    row: UsageRow
    bill: GpuBill


def charges(
    rows: Iterable[UsageRow], days: Sequence[GpuDay], prices: Mapping[str, float], *, everyone: bool
) -> list[Charge]:
    """`everyone`: the rows are all tenants', so what is not theirs is the service's; GPUs that no model holds are nobody's."""
    by_day = {day.day: bills(day.by_model, prices) for day in days}
    work = {(day.day, model): ms for day in days for model, ms in day.work_ms.items()}
    rows = list(rows)
    if everyone:  # read at another moment, the table may know more work than the rows have
        work = _work_of(rows)
    charged = [
        Charge(row, by_day.get(row.day, {}).get(row.model, GpuBill()).part(_share(row, work))) for row in rows
    ]
    if everyone:
        charged += [
            Charge(UsageRow(day, SERVICE, model, Used()), bill)
            for day, models in by_day.items()
            for model, bill in models.items()
            if model and not work.get((day, model))
        ]
    return sorted(charged, key=lambda c: (c.row.day, c.row.tenant, c.row.model))


def _work_of(rows: Iterable[UsageRow]) -> dict[tuple[str, str], int]:
    work: defaultdict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        work[row.day, row.model] += row.used.work_ms
    return work


def _share(row: UsageRow, work: Mapping[tuple[str, str], int]) -> float:
    whole = work.get((row.day, row.model), 0)
    return min(1.0, row.used.work_ms / whole) if whole else 0.0


@dataclass(frozen=True, slots=True)
class CostLine:
    """All charges of one model, or one tenant. `video_cost` and `token_cost` are what the models cost that made videos, and
    those that made tokens."""

    used: Used = field(default_factory=Used)
    bill: GpuBill = GpuBill()
    video_cost: float = 0.0
    token_cost: float = 0.0

    @property
    def per_video(self) -> float | None:
        return self.video_cost / self.used.videos if self.used.videos else None

    @property
    def per_million_tokens(self) -> float | None:
        tokens = self.used.prompt_tokens + self.used.completion_tokens
        return self.token_cost * 1e6 / tokens if tokens else None


def cost_lines(charged: Sequence[Charge], name_of: Callable[[UsageRow], str]) -> dict[str, CostLine]:
    """The charges added up by name."""
    makes_videos = {c.row.model for c in charged if c.row.used.videos}
    makes_tokens = {c.row.model for c in charged if c.row.used.prompt_tokens + c.row.used.completion_tokens}
    lines: defaultdict[str, CostLine] = defaultdict(CostLine)
    for charge in charged:
        row, name, cost = charge.row, name_of(charge.row), charge.bill.cost.held
        line = lines[name]
        lines[name] = CostLine(
            added(line.used, row.used),
            line.bill.plus(charge.bill),
            line.video_cost + (cost if row.model in makes_videos else 0.0),
            line.token_cost + (cost if row.model in makes_tokens else 0.0),
        )
    return dict(lines)
