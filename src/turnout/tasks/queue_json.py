"""The queue of all tenants as HTTP shows it: who waits and renders, but not what they asked to see."""

from typing import Literal

from pydantic import BaseModel

from turnout.tasks.task_rules import Priority, State, Task
from turnout.tasks.video_json import progress


class QueuedShown(BaseModel):
    """`queue_position` is how many of its model are served before it; None while it renders. There is no prompt: it is its
    owner's."""

    id: str
    object: Literal["queued_task"] = "queued_task"
    tenant: str
    model: str
    status: State
    progress: int
    priority: Priority
    attempt: int
    size: str
    frames: int
    steps: int
    created_at: float
    started_at: float | None
    queue_position: int | None
    eta_s: float | None


class Queue(BaseModel):
    """By model; those that render first, then in the order in which they are served. `unfinished` counts all by model: of a
    long queue only the oldest are shown."""

    object: Literal["list"] = "list"
    data: list[QueuedShown]
    unfinished: dict[str, int]


def queued_of(task: Task, position: int | None, eta_s: float | None) -> QueuedShown:
    return QueuedShown(
        id=task.id,
        tenant=task.tenant,
        model=task.model,
        status=task.state,
        progress=progress(task),
        priority=task.priority,
        attempt=task.attempt,
        size=f"{task.spec.width}x{task.spec.height}",
        frames=task.spec.frames,
        steps=task.spec.steps,
        created_at=task.created_at,
        started_at=task.started_at,
        queue_position=position,
        eta_s=None if eta_s is None else round(eta_s, 1),
    )
