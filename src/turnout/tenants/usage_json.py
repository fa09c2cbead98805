"""Usage, GPU time and costs as HTTP clients see them."""

from datetime import date
from typing import Literal

from pydantic import BaseModel, Field

from turnout.tenants.gpu_cost_rules import ByState, Charge, CostLine, GpuBill, why_so_much
from turnout.tenants.gpu_time_rules import HELD, GpuState
from turnout.tenants.usage_rules import Used

_SECONDS_DIGITS, _COST_DIGITS = 3, 6


class ByStateShown(BaseModel):
    """GPU-seconds, or what they cost. `held` is the sum of the next four; `free` are GPUs that no model holds."""

    held: float = 0.0
    busy: float = 0.0
    loading: float = 0.0
    idle: float = 0.0
    asleep: float = 0.0
    free: float = 0.0


class UsageShown(BaseModel):
    """`tenant` is empty in a row of GPU time that no tenant used."""

    object: Literal["usage"] = "usage"
    day: str
    tenant: str
    model: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    uncounted_requests: int
    videos: int
    video_seconds: float
    render_seconds: float
    work_seconds: float = 0.0
    attempts: int = 0
    gpu_seconds: ByStateShown = Field(default_factory=ByStateShown)
    cost: ByStateShown = Field(default_factory=ByStateShown)


class CostShown(BaseModel):
    """All of one model, worker or tenant in these days. `name` of a worker is its id; `known_as` the name it gave itself.
    `gpu_seconds_per_video` is what GPUs did for one completed video, and `why` says in a sentence how that differs from all."""

    name: str
    known_as: str = ""
    requests: int = 0
    tokens: int = 0
    videos: int = 0
    gpu_seconds: ByStateShown = Field(default_factory=ByStateShown)
    cost: ByStateShown = Field(default_factory=ByStateShown)
    attempts: int = 0
    cost_per_video: float | None = None
    gpu_seconds_per_video: ByStateShown | None = None
    why: str | None = None
    cost_per_million_tokens: float | None = None


class UsageList(BaseModel):
    """`unused_cost` is what GPUs cost that were held idle or asleep, or free. `workers`, and what is free, are for admins that
    ask for all tenants."""

    object: Literal["list"] = "list"
    start: date
    end: date
    data: list[UsageShown]
    currency: str = ""
    priced: bool = False
    total: CostShown = Field(default_factory=lambda: CostShown(name="total"))
    unused_cost: float = 0.0
    models: list[CostShown] = Field(default_factory=list[CostShown])
    tenants: list[CostShown] = Field(default_factory=list[CostShown])
    workers: list[CostShown] = Field(default_factory=list[CostShown])


def usage_of(charge: Charge) -> UsageShown:
    row, used = charge.row, charge.row.used
    return UsageShown(
        day=row.day,
        tenant=row.tenant,
        model=row.model,
        requests=used.requests,
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        uncounted_requests=used.uncounted,
        videos=used.videos,
        video_seconds=used.video_ms / 1000,
        render_seconds=used.render_ms / 1000,
        work_seconds=used.work_ms / 1000,
        attempts=used.attempts,
        gpu_seconds=by_state(charge.bill.seconds, _SECONDS_DIGITS),
        cost=by_state(charge.bill.cost, _COST_DIGITS),
    )


def cost_of(name: str, line: CostLine, known_as: str = "", mean: CostLine | None = None) -> CostShown:
    """`mean` is what all together cost."""
    used = line.used
    return CostShown(
        name=name,
        known_as=known_as,
        requests=used.requests,
        tokens=used.prompt_tokens + used.completion_tokens,
        videos=used.videos,
        gpu_seconds=by_state(line.bill.seconds, _SECONDS_DIGITS),
        cost=by_state(line.bill.cost, _COST_DIGITS),
        attempts=used.attempts,
        cost_per_video=_rounded(line.per_video),
        gpu_seconds_per_video=by_state(took, _SECONDS_DIGITS) if (took := line.video_seconds) else None,
        why=why_so_much(line, mean) if mean is not None else None,
        cost_per_million_tokens=_rounded(line.per_million_tokens),
    )


def worker_cost_of(name: str, bill: GpuBill, known_as: str) -> CostShown:
    return cost_of(name, CostLine(Used(), bill), known_as)


def by_state(amounts: ByState, digits: int) -> ByStateShown:
    """Rounded; `held` is the sum of what is shown."""
    shown = {state.value: round(getattr(amounts, state), digits) for state in GpuState}
    return ByStateShown(held=round(sum(shown[state] for state in HELD), digits), **shown)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _COST_DIGITS)
