"""Which Kubernetes jobs to make and to remove for the tasks of a model whose runner is `job`, by what is seen of both. Pure.

The plan looks at states, not at events: what is seen late, twice or never changes only when something is done. A job is named
after its task, and made only when none of that name is seen; the API refuses a second one all the same.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from turnout.tasks.task_rules import Priority, State, Task, TaskId

_ORDER = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}


class JobPhase(StrEnum):
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it was seen. `attempt` is how many attempts its task had when it was made; `trouble` says in words what keeps
    it from working, or ended it; `ending`: it is being removed."""

    name: str
    uid: str
    task: TaskId
    attempt: int
    phase: JobPhase
    trouble: str = ""
    age_s: float = 0.0
    ending: bool = False

    @property
    def active(self) -> bool:
        return self.phase is JobPhase.ACTIVE


@dataclass(frozen=True, slots=True)
class CreateJob:
    task: TaskId
    attempt: int


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """`uid`: this very job, and not a later one of the same name."""

    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class FailTask:
    task: TaskId
    reason: str


JobAction = CreateJob | DeleteJob | FailTask


def plan_jobs(
    tasks: Collection[Task], jobs: Sequence[JobView], parallel: int, pending_s: float
) -> list[JobAction]:
    """`tasks` are a model's unfinished ones, `jobs` all that were made for the model's tasks; at most `parallel` are active."""
    actions: list[JobAction] = []
    unfinished = {task.id: task for task in tasks}
    for job in jobs:
        actions += _judge(job, unfinished.get(job.task), pending_s)
    failed = {action.task for action in actions if isinstance(action, FailTask)}
    have = {job.task for job in jobs}
    free = parallel - sum(job.active or job.ending for job in jobs)
    waiting = [t for t in tasks if t.state is State.QUEUED and t.id not in have and t.id not in failed]
    for task in _in_turn(waiting, (unfinished[j.task].tenant for j in jobs if j.task in unfinished))[
        : max(0, free)
    ]:
        actions.append(CreateJob(task.id, task.attempt))
    return actions


def _judge(job: JobView, task: Task | None, pending_s: float) -> list[JobAction]:
    if job.ending:
        return []
    if task is None or task.ended:
        # One that has ended by itself goes after its time to live, so that its log can be read.
        return [DeleteJob(job.name, job.uid, "its task has ended")] if job.active else []
    if task.state is State.IN_PROGRESS:
        return []  # the lease says whether somebody is at work
    tried = task.attempt > job.attempt
    if job.active:
        if job.trouble and not tried and job.age_s >= pending_s:
            return [FailTask(task.id, job.trouble), DeleteJob(job.name, job.uid, job.trouble)]
        return []
    again = DeleteJob(job.name, job.uid, "its task waits again")
    if job.trouble:
        return [FailTask(task.id, job.trouble), again]
    if not tried:
        return [
            FailTask(task.id, "its job ended before it had taken the task; see the log of its pods"),
            again,
        ]
    return [again]


def _in_turn(waiting: Iterable[Task], busy: Iterable[str]) -> list[Task]:
    """Tenants take turns, those with fewer jobs first; inside a tenant priority decides, then age."""
    taken = Counter(busy)
    ranked: list[tuple[int, float, Task]] = []
    for task in sorted(waiting, key=lambda t: (_ORDER[t.priority], t.created_at, t.id)):
        ranked.append((taken[task.tenant], task.created_at, task))
        taken[task.tenant] += 1
    return [task for _, _, task in sorted(ranked, key=lambda r: (r[0], r[1], r[2].id))]
