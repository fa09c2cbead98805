"""How a model stands: a state with its fields, and the one place that turns it into words for a user. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from turnout.fleet.model_rules import Runner


class ModelState(StrEnum):
    READY = "ready"
    STARTING = "starting"
    ASLEEP = "asleep"
    STOPPED = "stopped"
    WAITING = "waiting"
    STOPPING = "stopping"
    FAILED = "failed"


class StatusCause(StrEnum):
    """What a model waits for, or why it is in its state where the state alone does not tell."""

    REGISTERED = "registered"
    NOT_LOOKED_AT = "not_looked_at"
    NO_WORKER = "no_worker"
    NO_WORKER_ALIVE = "no_worker_alive"
    WORKER_SILENT = "worker_silent"
    WORKER_UNSETTLED = "worker_unsettled"
    ROOM_BEING_MADE = "room_being_made"
    MEMORY_BEING_FREED = "memory_being_freed"
    MEMORY_HELD = "memory_held"
    RUN_BY_RAY = "run_by_ray"
    RUN_BY_OTHERS = "run_by_others"
    RUN_BY_JOBS = "run_by_jobs"


RUN_BY = {
    Runner.RAY: StatusCause.RUN_BY_RAY,
    Runner.EXTERNAL: StatusCause.RUN_BY_OTHERS,
    Runner.JOB: StatusCause.RUN_BY_JOBS,
}
"""Models whose gangs the manager does not place say so in every state."""
_RUN_ELSEWHERE = frozenset(RUN_BY.values())


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """Only the fields that belong to the state are set. `for_s` is how long it has been in it; `by` are the models that
    make room, or hold the memory. `wake_s` is how long it took to become ready the last time, and `idle_left_s` when its
    last replica leaves if nobody asks; None where nobody knows, or it does not leave."""

    state: ModelState
    cause: StatusCause | None = None
    replicas: int = 0
    worker: str = ""
    for_s: float = 0.0
    waking: bool = False
    busy: int = 0
    failures: int = 0
    retry_s: float = 0.0
    reason: str = ""
    by: tuple[str, ...] = ()
    wake_s: float | None = None
    idle_left_s: float | None = None

    @property
    def runs_elsewhere(self) -> bool:
        """Whether somebody else than the manager starts its gangs."""
        return self.cause in _RUN_ELSEWHERE


NOT_LOOKED_AT = ModelStatus(ModelState.STOPPED, StatusCause.NOT_LOOKED_AT)
REGISTERED = ModelStatus(ModelState.STOPPED, StatusCause.REGISTERED)

_TROUBLE = frozenset({StatusCause.NOT_LOOKED_AT, StatusCause.NO_WORKER, StatusCause.NO_WORKER_ALIVE})


def troubled(state: ModelState, cause: StatusCause | None) -> bool:
    """Whether an operator should look."""
    return state is ModelState.FAILED or cause in _TROUBLE


def describe(status: ModelStatus) -> str:
    match status.state:
        case ModelState.READY:
            return f"ready: {status.replicas} replica{'s' if status.replicas > 1 else ''}"
        case ModelState.STARTING:
            loading = f" ({status.reason})" if status.reason else ""
            return f"{'waking' if status.waking else 'starting'} on {status.worker} for {status.for_s:.0f} s{loading}"
        case ModelState.ASLEEP:
            return "asleep"
        case ModelState.STOPPED:
            why = f": {status.reason}" if status.reason else ""
            return f"{_cause(status)}{why}" if status.cause else "not started: nobody asks for it"
        case ModelState.WAITING:
            return f"waiting for {status.for_s:.0f} s: {_cause(status)}"
        case ModelState.STOPPING if status.reason:
            under_way = f", {status.busy} requests under way" if status.busy else ""
            return f"leaving {status.worker} ({status.reason}{under_way})"
        case ModelState.STOPPING:
            return f"stopping on {status.worker} for {status.for_s:.0f} s"
        case ModelState.FAILED if status.failures:
            return f"{_failed(status)}; next try in {status.retry_s:.0f} s"
        case ModelState.FAILED:
            return _cause(status) if status.cause else status.reason


def why_tasks_wait(status: ModelStatus) -> str | None:
    """Why a task of this model is not rendered yet; None while the model is ready. The words change with the reason alone:
    there are no times in them."""
    match status.state:
        case ModelState.READY:
            return None
        case ModelState.STARTING:
            return f"waking: {status.reason or 'loading'} on {status.worker}"
        case ModelState.STOPPED if status.runs_elsewhere:
            return f"waiting for a gang: {status.reason or _cause(status)}"
        case ModelState.ASLEEP | ModelState.STOPPED | ModelState.WAITING:
            return f"waking: {_cause(status)}" if status.cause else "waking"
        case ModelState.STOPPING:
            return f"waking: it has to leave {status.worker} first"
        case ModelState.FAILED if status.failures:
            return f"{_failed(status)}; it will be tried again"
        case ModelState.FAILED:
            return _cause(status) if status.cause else status.reason


def _failed(status: ModelStatus) -> str:
    times = {1: "once", 2: "twice"}.get(status.failures, f"{status.failures} times")
    return f"failed {times}: {status.reason}"


def _cause(status: ModelStatus) -> str:
    match status.cause:
        case StatusCause.REGISTERED:
            return "registered"
        case StatusCause.NOT_LOOKED_AT:
            return "the manager has not looked at it yet"
        case StatusCause.NO_WORKER:
            return "no worker has joined"
        case StatusCause.NO_WORKER_ALIVE:
            return "no worker is alive"
        case StatusCause.WORKER_SILENT:
            return f"worker {status.worker} does not answer"
        case StatusCause.WORKER_UNSETTLED:
            return f"{status.worker} still stops replicas that were placed elsewhere"
        case StatusCause.ROOM_BEING_MADE:
            return f"{', '.join(status.by)} makes room for it"
        case StatusCause.MEMORY_BEING_FREED:
            return "memory is being freed"
        case StatusCause.RUN_BY_RAY:
            return "its gangs run on Ray"
        case StatusCause.RUN_BY_OTHERS:
            return "its gangs are started by others"
        case StatusCause.RUN_BY_JOBS:
            return "each task is a job on Kubernetes"
        case StatusCause.MEMORY_HELD if status.by:
            return f"the memory it needs is held by {', '.join(status.by)}"
        case StatusCause.MEMORY_HELD | None:
            return "other models hold the memory it needs"
