"""What GPU time cost, and who pays for it. Pure.

A model's GPU time is divided among tenants as it passes (`gpu_division_rules`); here it is priced. What was booked before
there was such a division is divided by the day's work. What is nobody's, the service pays: that is the row of no tenant. So the
parts of all add up to what was held.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from turnout.tenants.gpu_division_rules import SERVICE
from turnout.tenants.gpu_time_rules import CPU, HELD, GpuCell, GpuState
from turnout.tenants.usage_rules import UsageRow, Used, added

_ALL = "*"
_ROUNDING = 1e-9
_SHOWN_S = 0.05


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

    def by_state(self, parts: Mapping[GpuState, float]) -> "GpuBill":
        """These parts of what it is in each state."""
        kept = [
            ByState(**{state.value: getattr(whole, state) * part for state, part in parts.items()})
            for whole in (self.seconds, self.cost)
        ]
        return GpuBill(*kept)


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
    """A day's tables: ms by model, by worker, and the time for which tenants had each model at work. `divided` is what of it is
    tenants' by `gpu_division_rules`, by state and model; `waiting_ms` the loading that waits for its first user, by model."""

    day: str
    by_model: Mapping[GpuCell, int] = field(default_factory=dict[GpuCell, int])
    by_worker: Mapping[GpuCell, int] = field(default_factory=dict[GpuCell, int])
    work_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    divided: Mapping[tuple[GpuState, str], int] = field(default_factory=dict[tuple[GpuState, str], int])
    waiting_ms: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Charge:
    """What a tenant used of a model on a day, and its part of the model's GPU time."""

    row: UsageRow
    bill: GpuBill


def charges(
    rows: Iterable[UsageRow], days: Sequence[GpuDay], prices: Mapping[str, float], *, everyone: bool
) -> list[Charge]:
    """`everyone`: the rows are all tenants', so what is not theirs is the service's; GPUs that no model holds are nobody's."""
    theirs = [row for row in rows if row.tenant != SERVICE]
    by_model: defaultdict[tuple[str, str], list[UsageRow]] = defaultdict(list)
    for row in theirs:
        by_model[row.day, row.model].append(row)
    charged = {id(row): GpuBill() for row in theirs}
    services: list[Charge] = []
    for day in days:
        for model, bill in bills(day.by_model, prices).items():
            users = by_model.get((day.day, model), [])
            parts = _parts(day, model, bill, users, everyone=everyone)
            charged |= {id(row): bill.by_state(part) for row, part in zip(users, parts, strict=True)}
            rest = {state: 1 - sum(part[state] for part in parts) for state in HELD}
            left = bill.by_state({state: part for state, part in rest.items() if part > _ROUNDING})
            if everyone and model and left.seconds.held:
                services.append(Charge(UsageRow(day.day, SERVICE, model, Used()), left))
    found = [*(Charge(row, charged[id(row)]) for row in theirs), *services]
    return sorted(found, key=lambda c: (c.row.day, c.row.tenant, c.row.model))


def _parts(
    day: GpuDay, model: str, bill: GpuBill, users: Sequence[UsageRow], *, everyone: bool
) -> list[dict[GpuState, float]]:
    """Each user's part of the model's time of that day in each state: what was divided as it passed, and of the rest (days before
    there was a division, and the last few seconds) by work."""
    # Read at another moment, the table may know more than the rows have.
    work = sum(row.used.work_ms for row in users) if everyone else day.work_ms.get(model)
    parts: list[dict[GpuState, float]] = [{} for _ in users]
    for state in HELD:
        total = 1000 * getattr(bill.seconds, state)
        own = [getattr(row.used, f"{state}_ms") for row in users]
        divided = max(sum(own), day.divided.get((state, model), 0))
        waiting = day.waiting_ms.get(model, 0) if state is GpuState.LOADING else 0
        by_work = max(0.0, total - divided - waiting)
        for part, row, ms in zip(parts, users, own, strict=True):
            share = min(1.0, row.used.work_ms / work) if work else 0.0
            part[state] = (ms * total / max(total, divided) + by_work * share) / total if total else 0.0
    return parts


@dataclass(frozen=True, slots=True)
class CostLine:
    """All charges of one model, or one tenant. `videos_bill` and `token_cost` are those of models that made videos, and of those
    that made tokens."""

    used: Used = field(default_factory=Used)
    bill: GpuBill = GpuBill()
    videos_bill: GpuBill = GpuBill()
    token_cost: float = 0.0

    @property
    def per_video(self) -> float | None:
        return self.videos_bill.cost.held / self.used.videos if self.used.videos else None

    @property
    def video_seconds(self) -> ByState | None:
        """What the GPUs did for one video, on average."""
        return self.videos_bill.seconds.part(1 / self.used.videos) if self.used.videos else None

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
            line.videos_bill.plus(charge.bill) if row.model in makes_videos else line.videos_bill,
            line.token_cost + (cost if row.model in makes_tokens else 0.0),
        )
    return dict(lines)


def why_so_much(line: CostLine, mean: CostLine) -> str | None:
    """In a sentence, what a tenant's videos took, and what of it was more or less than the videos of all took on average."""
    own, usual = line.video_seconds, mean.video_seconds
    if own is None or usual is None:
        return None
    did = ", ".join(f"{getattr(own, state):.1f} {state}" for state in HELD if getattr(own, state) >= _SHOWN_S)
    said = f"a video took {own.held:.1f} GPU-seconds ({did or 'none'})"
    if line.used.attempts > line.used.videos:
        said += f" and {line.used.attempts / line.used.videos:.1f} attempts"
    differs = {state: getattr(own, state) - getattr(usual, state) for state in HELD}
    told = [f"{s:+.1f} {state}" for state, s in differs.items() if abs(s) >= max(_SHOWN_S, usual.held / 20)]
    return f"{said}; the mean is {usual.held:.1f}: {', '.join(told)}" if told else said
