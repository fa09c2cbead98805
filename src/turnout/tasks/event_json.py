"""Events as clients get them: one JSON text for each, for server-sent events and sockets alike."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from websockets.frames import Frame, Opcode

from turnout.tasks.task_rules import (
    Cancelled,
    Checkpointed,
    Claimed,
    Deleted,
    Event,
    Expired,
    Failed,
    Finished,
    Interrupted,
    Previewed,
    Progressed,
    Recorded,
    Stage,
    State,
    Submitted,
    Task,
    TaskFailure,
    TaskId,
)
from turnout.tasks.video_json import WaitingFor, error_of, loaded_fields, percent, preview_path, video_of


@dataclass(frozen=True, slots=True)
class EventJson:
    """`text` is the JSON, `sse` the same as a server-sent event; `ended` says that it is the task's last.
    `waits` that the task may now wait for its model. A note has no id and no cursor: nobody can resume from it.
    `frame` is the whole WebSocket message, `chunk` the server-sent event as it is on the wire, `order` and `cursor_order` are
    the id and the cursor to compare by: all are made once, however many watch."""

    id: str
    cursor: str
    text: str
    sse: bytes
    ended: bool = False
    waits: bool = False
    frame: bytes = field(init=False, repr=False, compare=False)
    chunk: bytes = field(init=False, repr=False, compare=False)
    order: tuple[int, ...] = field(init=False, repr=False, compare=False)
    cursor_order: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", Frame(Opcode.TEXT, self.text.encode()).serialize(mask=False))
        object.__setattr__(self, "chunk", b"%x\r\n%b\r\n" % (len(self.sse), self.sse))
        object.__setattr__(self, "order", order_of(self.id))
        object.__setattr__(self, "cursor_order", order_of(self.cursor))


def order_of(event_id: str) -> tuple[int, ...]:
    """Ids are numbers joined by dashes, compared part by part; no id comes before all others."""
    return tuple(int(part) for part in event_id.split("-")) if event_id else ()


def event_json(
    recorded: Recorded, task: Task | None, url_of: Callable[[TaskId, float], str] | None = None
) -> EventJson:
    """`task` as it is now is needed for an interruption, which may have been the last, and for what was submitted. The URL of a finished video counts
    from its end, so that the event is the same whenever it is told."""
    kind, fields, ended = _described(recorded, task)
    if url_of is not None and isinstance(recorded.event, Finished):
        fields["url"] = url_of(recorded.task, recorded.event.at)
    content = {
        "id": recorded.id,
        "object": "video.event",
        "type": f"video.{kind}",
        "video": recorded.task,
        "created_at": recorded.event.at,
        **fields,
    }
    if recorded.cursor:
        content["cursor"] = recorded.cursor
    text = json.dumps(content, separators=(",", ":"))
    return EventJson(
        recorded.id,
        recorded.cursor,
        text,
        f"id: {recorded.id}\nevent: video.{kind}\ndata: {text}\n\n".encode(),
        ended,
        not ended and may_wait(recorded.event),
    )


def may_wait(event: Event) -> bool:
    """Whether a task may wait for its model after this event."""
    return isinstance(event, Submitted | Claimed | Interrupted) or (
        isinstance(event, Progressed) and event.stage is Stage.LOADING
    )


@dataclass(frozen=True, slots=True)
class QueueTold:
    """How many are served before a task that waits, and the seconds until it ends; None where nobody knows."""

    position: int | None
    eta_s: float | None


def waiting_note(task: TaskId, reason: WaitingFor | None, line: QueueTold) -> EventJson:
    """Why a task waits, None: for nothing but its turn; and when that is."""
    content = {
        "object": "video.event",
        "type": "video.waiting",
        "video": task,
        "waiting_for": reason and reason.model_dump(mode="json"),
        "queue_position": line.position,
        "eta_s": line.eta_s and round(line.eta_s, 1),
    }
    text = json.dumps(content, separators=(",", ":"))
    return EventJson("", "", text, f"event: video.waiting\ndata: {text}\n\n".encode())


def watching_note(cursor: str | None) -> EventJson:
    """The first message to who watches a tenant: whatever happens from now on is told."""
    text = json.dumps({"object": "video.watching", "cursor": cursor}, separators=(",", ":"))
    return EventJson("", "", text, b"")


def _described(recorded: Recorded, task: Task | None) -> tuple[str, dict[str, Any], bool]:
    match recorded.event:
        case Submitted():
            return "queued", {"status": "queued", **_as_submitted(task)}, False
        case Claimed(attempt=attempt):
            fields = {"status": "in_progress", "attempt": attempt, "progress": percent(Stage.LOADING, 0, 0)}
            return "in_progress", fields, False
        case Progressed() as p:
            fields = {
                "status": "in_progress",
                "attempt": p.attempt,
                "stage": p.stage,
                "step": p.step,
                "steps": p.of,
                "eta_s": p.eta_s,
                "progress": percent(p.stage, p.step, p.of),
                **loaded_fields(p.loaded),
            }
            return "progress", fields, False
        case Previewed(attempt=attempt, step=step):
            fields = {"attempt": attempt, "step": step, "preview_url": preview_path(recorded.task)}
            return "preview", fields, False
        case Checkpointed(attempt=attempt, step=step):
            return "checkpoint", {"attempt": attempt, "step": step}, False
        case Interrupted() as i:
            if task is not None and _was_last(i, task):
                return "failed", _failed(task.failure, i.attempt), True
            return "requeued", {"status": "queued", "attempt": i.attempt, "reason": i.reason}, False
        case Finished(attempt=attempt):
            return "completed", {"status": "completed", "attempt": attempt, "progress": 100}, True
        case Failed(attempt=attempt, failure=failure):
            return "failed", _failed(failure, attempt), True
        case Cancelled():
            return "cancelled", {"status": "cancelled"}, True
        case Expired(failure=failure):
            return "failed", {"status": "failed", "error": error_of(failure).model_dump()}, True
        case Deleted():
            return "deleted", {}, True


def _as_submitted(task: Task | None) -> dict[str, Any]:
    """What was asked for, as a video object: whoever watches need not ask for it. The same whenever the event is told."""
    if task is None:
        return {}
    first = Task(
        id=task.id,
        tenant=task.tenant,
        model=task.model,
        spec=task.spec,
        created_at=task.created_at,
        priority=task.priority,
        remixed_from=task.remixed_from,
        name=task.name,
        batch=task.batch,
    )
    return {"snapshot": video_of(first, 0.0).model_dump(mode="json")}


def _was_last(event: Interrupted, task: Task) -> bool:
    """Whether this interruption used up the task's attempts, rather than put it back into the queue."""
    failure = task.failure
    return (
        task.state is State.FAILED
        and task.attempt == event.attempt
        and failure is not None
        and failure.code == "attempts_exhausted"
    )


def _failed(failure: TaskFailure | None, attempt: int) -> dict[str, Any]:
    error = None if failure is None else error_of(failure).model_dump()
    return {"status": "failed", "attempt": attempt, "error": error}
