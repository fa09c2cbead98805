"""What tenants used: counts by day, tenant and model. Pure."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime

from turnout.domain.tasks import State, Task, TenantId


@dataclass(frozen=True, slots=True)
class Used:
    """Chat requests that were answered and their tokens by the engine's own count; `uncounted` are requests whose
    engine gave none, because they were cut (their events count as tokens) or it does not count. Of videos: those that
    were completed, their length, and for all that were begun the time from then to their end."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    videos: int = 0
    video_ms: int = 0
    render_ms: int = 0


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


def used_by(task: Task) -> Used:
    """What a task that has ended used."""
    begun, ended = task.started_at, task.finished_at
    render_ms = int((ended - begun) * 1000) if begun is not None and ended is not None else 0
    if task.state is not State.COMPLETED:
        return Used(render_ms=max(0, render_ms))
    return Used(videos=1, video_ms=task.spec.frames * 1000 // task.spec.fps, render_ms=max(0, render_ms))
