"""What tenants used: counts by day, tenant and model. Pure."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime

from turnout.tasks.task_rules import State, Task, TenantId


@dataclass(frozen=True, slots=True)
class Used:
    """Chat requests that were answered and their tokens by the engine's own count; `uncounted` are requests whose
    engine gave none, because they were cut (their events count as tokens) or it does not count. Of videos: those that
    were completed, their length, and for all that were begun the time from then to their end. `work_ms` is the time for
    which its requests were at a replica and its attempts (also those that died) held a gang: GPU time is divided by it."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    videos: int = 0
    video_ms: int = 0
    render_ms: int = 0
    work_ms: int = 0


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


def used_by(before: Task | None, task: Task, at: float) -> Used:
    """What a write adds by which an attempt or the task itself ends."""
    work_ms = 0
    if before is not None and before.state is State.IN_PROGRESS and task.state is not State.IN_PROGRESS:
        work_ms = max(0, int((at - (before.claimed_at or before.started_at or at)) * 1000))
    if not task.ended:
        return Used(work_ms=work_ms)
    begun, ended = task.started_at, task.finished_at
    render_ms = int((ended - begun) * 1000) if begun is not None and ended is not None else 0
    if task.state is not State.COMPLETED:
        return Used(render_ms=max(0, render_ms), work_ms=work_ms)
    video_ms = task.spec.frames * 1000 // task.spec.fps
    return Used(videos=1, video_ms=video_ms, render_ms=max(0, render_ms), work_ms=work_ms)
