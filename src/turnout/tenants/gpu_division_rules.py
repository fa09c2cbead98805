"""Who pays for GPU time, decided as it passes and for good: a day, a month or a time zone only says where it is listed. Pure.

Every few seconds a model's new GPU time, whatever the GPUs did, is divided by the work of those few seconds. Time without
work is that of the model's last users, as long as the model waits for more (`idle_s`); then it is the service's, who keeps the
model loaded. Loading waits for those for whom the model was loaded: the first that work on it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from turnout.tasks.task_rules import TenantId
from turnout.tenants.gpu_time_rules import HELD, GpuState

SERVICE = TenantId("")
"""Who pays for what no tenant used."""
_STOP_S = 30.0  # what a model that is not used takes beyond `idle_s` until it has left its GPUs
_WAIT_MS = 300_000  # GPU time after loading without any work: nobody comes who wanted it loaded
_MAX_USERS = 200


class GpuPart(NamedTuple):
    """GPU time of a model in one state that was booked on a day."""

    day: str
    state: GpuState
    model: str

    @property
    def name(self) -> str:
        return f"{self.day}:{self.state}:{self.model}"


def part_of(name: str) -> GpuPart | None:
    """None for a name that is none of ours."""
    day, _, rest = name.partition(":")
    state, colon, model = rest.partition(":")
    known = next((one for one in HELD if one == state), None)
    return GpuPart(day, known, model) if known is not None and colon else None


@dataclass(frozen=True, slots=True)
class LastUsers:
    """Who worked on a model last, and how long each in the seconds before `at`."""

    at: float
    work_ms: Mapping[TenantId, int] = field(default_factory=dict[TenantId, int])


@dataclass(frozen=True, slots=True)
class GpuDivision:
    """`parts` is what each tenant takes of what was not divided; the rest waits. `users` are those to remember."""

    parts: Mapping[tuple[GpuPart, TenantId], int]
    users: Mapping[str, LastUsers]


def divide(
    undivided: Mapping[GpuPart, int],
    work: Mapping[str, Mapping[TenantId, int]],
    last: Mapping[str, LastUsers],
    idle_s: Mapping[str, float],
    now: float,
    open_days: Collection[str],
) -> GpuDivision:
    """`work` in ms by model, `idle_s` how long each model waits for work. Nothing waits any more once its day is none of
    `open_days`."""
    users = {model: LastUsers(now, _largest(ms)) for model, ms in work.items() if any(ms.values())}
    by_model: defaultdict[str, dict[GpuPart, int]] = defaultdict(dict)
    for part, ms in undivided.items():
        by_model[part.model][part] = ms
    parts: dict[tuple[GpuPart, TenantId], int] = {}
    for model, of_model in by_model.items():
        worked = {tenant: ms for tenant, ms in work.get(model, {}).items() if ms > 0}
        if not worked and _waits(of_model):
            of_model = {part: ms for part, ms in of_model.items() if part.day not in open_days}
        payers = worked or _without_work(last.get(model), idle_s.get(model, 0.0), now)
        for part, ms in of_model.items():
            parts |= {(part, tenant): own for tenant, own in _shares(ms, payers).items()}
    return GpuDivision(parts, users)


def _waits(parts: Mapping[GpuPart, int]) -> bool:
    """Whether somebody may still come who wanted the model loaded."""
    loading = any(part.state is GpuState.LOADING for part in parts)
    return loading and sum(ms for part, ms in parts.items() if part.state is not GpuState.LOADING) < _WAIT_MS


def _without_work(last: LastUsers | None, idle_s: float, now: float) -> Mapping[TenantId, int]:
    in_time = last is not None and now - last.at <= idle_s + _STOP_S
    return last.work_ms if last is not None and in_time and last.work_ms else {SERVICE: 1}


def _shares(ms: int, payers: Mapping[TenantId, int]) -> dict[TenantId, int]:
    """Whole milliseconds that add up to `ms`."""
    total, shares, given, before = sum(payers.values()), dict[TenantId, int](), 0, 0
    for tenant in sorted(payers):
        before += payers[tenant]
        upto = ms * before // total
        if upto > given:
            shares[tenant] = upto - given
        given = upto
    return shares


def _largest(work_ms: Mapping[TenantId, int]) -> dict[TenantId, int]:
    return dict(Counter({tenant: ms for tenant, ms in work_ms.items() if ms > 0}).most_common(_MAX_USERS))
