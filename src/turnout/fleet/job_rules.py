"""How many jobs on Kubernetes a model should have, by its tasks and the jobs that are there. Pure.

A job is a gang for one task, whichever the queue gives it: who is next is the queue's business alone. The plan looks at states,
not at events: what is seen late, twice or never changes only when something is done.

A model's jobs are numbered, and a new one gets the number after the highest that was ever made or is seen. So launchers that see
the same make the same name, which the API takes once; one that sees an older list tries numbers that are taken. No number comes
again, or a new job would be taken for an older one whose gang is still known.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from turnout.fleet.fleet_rules import Rules
from turnout.fleet.scaling_rules import replicas_needed
from turnout.tasks.task_rules import GangId

_RULES = Rules()


class JobPhase(StrEnum):
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it was seen. `trouble` says in words what keeps it from working, or broke it; `started`: one of its pods has run;
    `ending`: it is being removed; `suspended`: a queue of the cluster's own holds it back. `made_of` tells what a gang was made of that
    stays for further tasks."""

    name: str
    uid: str
    model: str
    number: int
    phase: JobPhase
    trouble: str = ""
    age_s: float = 0.0
    started: bool = False
    ending: bool = False
    suspended: bool = False
    made_of: str = ""

    @property
    def gang(self) -> GangId:
        """Its gang is called as the job."""
        return GangId(self.name)

    @property
    def active(self) -> bool:
        return self.phase is JobPhase.ACTIVE

    @property
    def waits(self) -> bool:
        """None of its pods has run yet."""
        return self.active and not self.started and not self.ending


@dataclass(frozen=True, slots=True)
class CreateJob:
    number: int


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """`uid`: this very job, and not a later one of the same name."""

    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class PutBack:
    """What the gang of a job that died still holds waits again; it costs the task an attempt."""

    gang: GangId
    reason: str


@dataclass(frozen=True, slots=True)
class TellTrouble:
    """Why tasks of the model wait."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailTasks:
    """The tasks that have waited for `pending_s` fail: nothing but trouble came of their jobs for so long."""

    reason: str


JobAction = CreateJob | DeleteJob | PutBack | TellTrouble | FailTasks


def plan_jobs(
    unfinished: int,
    jobs: Sequence[JobView],
    held: Mapping[GangId, int],
    most: int,
    pending_s: float,
    made: int = 0,
    made_of: str = "",
) -> list[JobAction]:
    """`unfinished` tasks of the model wait or are rendered; `jobs` are the model's, `held` says how many tasks each gang holds
    that ever took one. There are never more jobs than tasks, nor than `most`, but for gangs that stay until they were idle for long. `made`
    is the highest number so far; `made_of` is what gangs that stay are made of now."""
    needed = replicas_needed(unfinished, 1, 0, most)
    there = [job for job in jobs if job.active or job.ending]
    waiting = [job for job in jobs if job.waits]
    newest_first = sorted(waiting, key=lambda job: -job.number)
    actions: list[JobAction] = [*_put_back(jobs, held)]
    actions += [
        DeleteJob(job.name, job.uid, "no task is left for it")
        for job in newest_first[: max(0, len(there) - needed)]
    ]
    actions += _outdated(there, made_of)
    if not needed:
        return actions
    if troubled := _in_trouble(jobs, held):
        reason = troubled[0].trouble
        actions.append(TellTrouble(reason))
        works = any(job.active and _holds(job, held) for job in jobs)
        if not works and max(job.age_s for job in troubled) >= pending_s:
            stuck = (job for job in troubled if job in waiting and job.age_s >= pending_s)
            return [*actions, FailTasks(reason), *(DeleteJob(job.name, job.uid, reason) for job in stuck)]
        if troubled[0].age_s < _RULES.backoff(len(troubled)):
            return actions
        needed = 1  # one more try tells as much as many
    first = 1 + max((job.number for job in jobs if job.number > made), default=made)
    return [*actions, *(CreateJob(first + n) for n in range(needed - len(there)))]


def _outdated(there: Sequence[JobView], made_of: str) -> list[DeleteJob]:
    """Gangs that stay and are made of what was declared before leave one after the other: their tasks go on from checkpoints."""
    if any(job.ending for job in there):
        return []
    old = (job for job in there if job.made_of and job.made_of != made_of and job.started)
    return [DeleteJob(job.name, job.uid, "it was made of what was declared before") for job in old][:1]


def _holds(job: JobView, held: Mapping[GangId, int]) -> bool:
    return held.get(job.gang, 0) > 0


def _put_back(jobs: Collection[JobView], held: Mapping[GangId, int]) -> Iterator[PutBack]:
    """Of a job that ended without known trouble the pods may still be writing their checkpoint: the lease decides."""
    for job in jobs:
        if job.trouble and not job.active and _holds(job, held):
            yield PutBack(job.gang, job.trouble)


def _in_trouble(jobs: Collection[JobView], held: Mapping[GangId, int]) -> list[JobView]:
    """The jobs since the last that took a task or ended well, newest first, as far as they have trouble. What becomes of one
    that took a task is that task's affair: its attempts are counted."""
    found: list[JobView] = []
    for job in sorted(jobs, key=lambda job: -job.number):
        if job.gang in held or not (job.active or job.trouble):
            break
        if job.trouble:
            found.append(job)
    return found
