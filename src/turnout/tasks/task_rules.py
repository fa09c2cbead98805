"""One video job: its states, what can happen to it, and `evolve`, the only place that knows the rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, NewType

from turnout.tasks.video_rules import VideoSpec
from turnout.telemetry.trace_rules import trace_field

TaskId = NewType("TaskId", str)
TenantId = NewType("TenantId", str)
PersonId = NewType("PersonId", str)
GangId = NewType("GangId", str)


class State(StrEnum):
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class Priority(StrEnum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    GUEST = "guest"  # after everybody else's; nobody can ask for it


class Stage(StrEnum):
    LOADING = "loading"
    ENCODING = "encoding"
    DENOISING = "denoising"
    DECODING = "decoding"
    UPLOADING = "uploading"


@dataclass(frozen=True, slots=True)
class Result:
    """Object keys of what was made; all lie under the attempt that made them."""

    video: str
    thumbnail: str
    spritesheet: str
    bytes: int
    picture: str | None = None  # of one frame


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """`params` are the values in the message by name, for whoever says it in another language."""

    code: str
    message: str
    params: Mapping[str, str | int] = field(default_factory=dict[str, str | int], hash=False)


@dataclass(frozen=True, slots=True)
class LoadedBytes:
    """How much of a model's weights rank 0 has read."""

    bytes: int
    of: int


@dataclass(frozen=True, slots=True)
class Task:
    """`attempt` is the fence: an event that carries an older number changes nothing. `name` is the caller's own id for it,
    which only its tenant knows it by. `person` is who asked for it, if a person did. `batch` is the caller's name for tasks
    that were asked for together. `original_prompt` is what was asked for, where the spec has a prompt that a chat model made of
    it; `rewrite_failure` is why it has not, though it was to.

    `failures` counts the attempts that died; a drained attempt does not count. `traceparent` is the request that submitted
    it, in a trace of its caller's or ours.
    """

    id: TaskId
    tenant: TenantId
    model: str
    spec: VideoSpec
    created_at: float
    priority: Priority = Priority.NORMAL
    max_attempts: int = 3
    webhook_url: str | None = None
    remixed_from: TaskId | None = None
    name: str | None = None
    person: PersonId | None = None
    batch: str | None = None
    original_prompt: str | None = None
    rewrite_failure: TaskFailure | None = None
    traceparent: str | None = None
    state: State = State.QUEUED
    attempt: int = 0
    failures: int = 0
    gang: GangId | None = None
    stage: Stage | None = None
    step: int = 0
    of: int = 0
    eta_s: float | None = None
    loaded: LoadedBytes | None = None
    started_at: float | None = None
    claimed_at: float | None = None  # the present attempt, or the last one
    finished_at: float | None = None
    preview: str | None = None
    checkpoint: str | None = None
    result: Result | None = None
    failure: TaskFailure | None = None

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def log_ids(self) -> dict[str, str | int]:
        """What log lines on it name."""
        return {"task": self.id, "attempt": self.attempt, **trace_field(self.traceparent)}


@dataclass(frozen=True, slots=True)
class Submitted:
    at: float
    kind: Literal["submitted"] = "submitted"


@dataclass(frozen=True, slots=True)
class Claimed:
    at: float
    attempt: int
    gang: GangId
    kind: Literal["claimed"] = "claimed"


@dataclass(frozen=True, slots=True)
class Progressed:
    at: float
    attempt: int
    stage: Stage
    step: int
    of: int
    eta_s: float | None = None
    loaded: LoadedBytes | None = None
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True)
class Previewed:
    at: float
    attempt: int
    step: int
    key: str
    kind: Literal["preview"] = "preview"


@dataclass(frozen=True, slots=True)
class Checkpointed:
    at: float
    attempt: int
    step: int
    key: str
    kind: Literal["checkpoint"] = "checkpoint"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The attempt ended without a result. `counts` is False when nobody is to blame (drain)."""

    at: float
    attempt: int
    reason: str
    counts: bool = True
    kind: Literal["interrupted"] = "interrupted"


@dataclass(frozen=True, slots=True)
class Finished:
    at: float
    attempt: int
    result: Result
    kind: Literal["finished"] = "finished"


@dataclass(frozen=True, slots=True)
class Failed:
    at: float
    attempt: int
    failure: TaskFailure
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Cancelled:
    at: float
    kind: Literal["cancelled"] = "cancelled"


@dataclass(frozen=True, slots=True)
class Expired:
    """The task ends without an attempt, and why: nobody took it within the retention, its model was removed, or no
    machine can run it."""

    at: float
    failure: TaskFailure
    kind: Literal["expired"] = "expired"


@dataclass(frozen=True, slots=True)
class Deleted:
    """The owner removed the task, which had ended: nothing else follows, and nothing of it is kept."""

    at: float
    kind: Literal["deleted"] = "deleted"


NOBODY_TOOK_IT = TaskFailure("expired", "No gang took the task within the retention period.")


Event = (
    Submitted
    | Claimed
    | Progressed
    | Previewed
    | Checkpointed
    | Interrupted
    | Finished
    | Failed
    | Cancelled
    | Expired
    | Deleted
)


def evolve(task: Task, event: Event) -> Task:
    """The task after `event`; a stale or late event returns the very same object."""
    match task.state, event:
        case State.QUEUED, Claimed(at=at, attempt=attempt, gang=gang) if attempt == task.attempt + 1:
            return replace(
                task,
                state=State.IN_PROGRESS,
                attempt=attempt,
                gang=gang,
                stage=Stage.LOADING,
                started_at=task.started_at or at,
                claimed_at=at,
            )
        case State.IN_PROGRESS, Progressed(attempt=task.attempt):
            return replace(
                task,
                stage=event.stage,
                step=event.step,
                of=event.of,
                eta_s=event.eta_s,
                loaded=event.loaded,
            )
        case State.IN_PROGRESS, Previewed(attempt=task.attempt):
            return replace(task, preview=event.key)
        case State.IN_PROGRESS, Checkpointed(attempt=task.attempt):
            return replace(task, checkpoint=event.key)
        case State.IN_PROGRESS, Interrupted(attempt=task.attempt):
            return _interrupted(task, event)
        case State.IN_PROGRESS, Finished(attempt=task.attempt):
            return replace(_ended(task, State.COMPLETED, event.at), result=event.result)
        case State.IN_PROGRESS, Failed(attempt=task.attempt):
            return replace(_ended(task, State.FAILED, event.at), failure=event.failure)
        case ((State.QUEUED | State.IN_PROGRESS), Cancelled(at=at)):
            return _ended(task, State.CANCELLED, at)
        case State.QUEUED, Expired(at=at, failure=failure):
            return replace(_ended(task, State.FAILED, at), failure=failure)
        case _:
            return task


def _interrupted(task: Task, event: Interrupted) -> Task:
    failures = task.failures + event.counts
    if failures < task.max_attempts:
        return replace(
            task, state=State.QUEUED, failures=failures, gang=None, stage=None, eta_s=None, loaded=None
        )
    failure = TaskFailure(
        "attempts_exhausted",
        f"All {task.max_attempts} attempts died; the last one at step {task.step} of {task.of}: {event.reason}",
        {"attempts": task.max_attempts, "step": task.step, "of": task.of, "reason": event.reason},
    )
    return replace(_ended(task, State.FAILED, event.at), failures=failures, failure=failure)


def _ended(task: Task, state: State, at: float) -> Task:
    return replace(
        task,
        state=state,
        finished_at=at,
        gang=None,
        stage=None,
        eta_s=None,
        loaded=None,
        checkpoint=None,
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event as it was written. `id` orders the events of one task, `cursor` those of all tasks."""

    id: str
    cursor: str
    task: TaskId
    tenant: TenantId
    event: Event


@dataclass(frozen=True, slots=True)
class Idempotency:
    """`key` is the caller's, in `param` of its request; `digest` is a hash of the request. The key names the task, too."""

    key: str
    digest: str
    param: str = "Idempotency-Key"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tenant may have at once: `max_running` tasks in progress and `max_waiting` more that wait.

    A task past both is refused. With `max_waiting` 0, no task may wait for the tenant's own tasks.
    """

    max_waiting: int = 100
    max_running: int = 8
    submits_per_minute: int = 60
