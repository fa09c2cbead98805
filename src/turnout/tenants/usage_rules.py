"""What tenants used: counts by day, tenant and model. Pure."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from turnout.tasks.task_rules import State, Task, TenantId


class UsageBy(StrEnum):
    """What costs are added up by."""

    MODEL = "model"
    WORKER = "worker"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Used:
    """Chat requests that were answered and their tokens by the engine's own count; `uncounted` are requests whose
    engine gave none, because they were cut (their events count as tokens) or it does not count. Of videos: those that
    were completed, their length, the attempts that were begun, and the time for which those held a gang (`render_ms`). `work_ms`
    is that and the time for which chat requests were at a replica: GPU time is divided by it. The last four are the tenant's
    part of what the model's GPUs did (`gpu_division_rules`)."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    videos: int = 0
    video_ms: int = 0
    render_ms: int = 0
    work_ms: int = 0
    attempts: int = 0
    busy_ms: int = 0
    loading_ms: int = 0
    idle_ms: int = 0
    asleep_ms: int = 0


def added(one: Used, other: Used) -> Used:
    return Used(*(getattr(one, name) + getattr(other, name) for name in FIGURES))


FIGURES = tuple(f.name for f in fields(Used))


@dataclass(frozen=True, slots=True)
class UsageRow:
    """`day` is a date in UTC, as 2026-11-15."""

    day: str
    tenant: TenantId
    model: str
    used: Used


def day_of(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def this_month_and_last(day: str) -> tuple[str, str]:
    """As 2026-11 and 2026-10: how far back a worker's GPU time can be undone."""
    year, month = int(day[:4]), int(day[5:7])
    return day[:7], f"{year - (month == 1):04}-{(month - 2) % 12 + 1:02}"


AttemptWork = Literal["", "begins", "ends", "lost"]
"""What a write does to the work of an attempt; `lost`: nobody has seen its end."""


def attempt_work(before: Task | None, task: Task, *, seen: bool) -> AttemptWork:
    was, is_now = before is not None and before.state is State.IN_PROGRESS, task.state is State.IN_PROGRESS
    if was == is_now:
        return ""
    return "begins" if is_now else "ends" if seen else "lost"


def used_by(before: Task | None, task: Task) -> Used:
    """What a write adds by which an attempt begins or the task ends, besides its work."""
    if attempt_work(before, task, seen=True) == "begins":
        return Used(attempts=1)
    if task.state is not State.COMPLETED:
        return Used()
    return Used(videos=1, video_ms=task.spec.frames * 1000 // task.spec.fps)
