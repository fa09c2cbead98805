"""Jobs for tasks: whatever is seen late, twice or never, there are no more jobs than tasks, and none is left over."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.fleet.job_rules import (
    CreateJob,
    DeleteJob,
    FailTasks,
    JobAction,
    JobPhase,
    JobView,
    PutBack,
    TellTrouble,
    plan_jobs,
)
from turnout.tasks.task_rules import GangId

MOST, PENDING_S = 2, 60.0


def job(number: int, phase: JobPhase = JobPhase.ACTIVE, trouble: str = "", **more: object) -> JobView:
    return replace(JobView(f"j-{number}", f"u{number}", "m", number, phase, trouble), **more)  # type: ignore[arg-type]


def plan(unfinished: int, *jobs: JobView, held: dict[str, int] | None = None) -> list[JobAction]:
    by_gang = {GangId(gang): count for gang, count in (held or {}).items()}
    return plan_jobs(unfinished, jobs, by_gang, MOST, PENDING_S, made_of="new")


@pytest.mark.parametrize(
    ("unfinished", "there", "made"),
    [(0, 0, []), (1, 0, [1]), (2, 0, [1, 2]), (9, 0, [1, 2]), (1, 1, []), (2, 1, [2]), (9, 2, [])],
)
def test_there_is_a_job_for_each_task_up_to_the_bound(unfinished: int, there: int, made: list[int]) -> None:
    jobs = [job(n + 1, started=True) for n in range(there)]
    assert plan(unfinished, *jobs) == [CreateJob(n) for n in made]


def test_what_has_ended_makes_room_and_what_is_being_removed_does_not() -> None:
    done, given_back = job(1, JobPhase.SUCCEEDED), job(2, JobPhase.FAILED)
    assert plan(2, done, given_back) == [CreateJob(3), CreateJob(4)], "numbers are not used twice"
    assert plan(2, job(1, ending=True), job(2)) == []
    assert plan(2, job(1, JobPhase.FAILED, ending=True), job(2)) == []


def test_a_job_without_a_task_is_removed_only_before_it_has_started() -> None:
    assert plan(1, job(1), job(2)) == [DeleteJob("j-2", "u2", "no task is left for it")]
    assert plan(0, job(1), job(2)) == [DeleteJob(f"j-{n}", f"u{n}", "no task is left for it") for n in (2, 1)]
    assert plan(0, job(1, started=True)) == [], "it leaves by itself, and its log stays"
    assert plan(0, job(1, JobPhase.SUCCEEDED)) == []
    assert plan(0, job(1, ending=True)) == []


def test_gangs_that_stay_are_replaced_one_after_the_other_when_what_they_are_made_of_changes() -> None:
    def stays(number: int, made_of: str, ending: bool = False) -> JobView:
        return job(number, started=True, made_of=made_of, ending=ending)

    gone = DeleteJob("j-1", "u1", "it was made of what was declared before")
    assert plan(2, stays(1, "old"), stays(2, "old")) == [gone]
    assert plan(0, stays(1, "old")) == [gone], "idle ones, too"
    assert plan(2, stays(1, "old", ending=True), stays(2, "old")) == []
    assert plan(2, stays(1, "new"), stays(2, "new")) == []
    assert plan(1, job(1, started=True)) == [], "one for a single task ends with what it began with"


def test_what_a_job_that_died_held_waits_again_with_the_reason_and_other_gangs_keep_theirs() -> None:
    died = job(1, JobPhase.FAILED, "OOMKilled", age_s=999.0)
    held = {"j-1": 1, "j-10": 1, "worker-1": 1}
    assert plan(2, died, held=held) == [
        PutBack(GangId("j-1"), "OOMKilled"),
        CreateJob(2),
        CreateJob(3),
    ], "its task was tried: the attempt counts, and no other task is blamed"
    assert plan(1, died, held={"j-1": 0}) == [CreateJob(2)]
    unknown = job(1, JobPhase.FAILED, age_s=999.0)
    assert plan(1, unknown, held={"j-1": 1}) == [CreateJob(2)], "its pods may still write a checkpoint"
    assert plan(1, job(1, trouble="no room"), held={"j-1": 1}) == [], "it is at work again"


def test_trouble_is_told_at_once_and_fails_tasks_after_a_while() -> None:
    stuck = job(1, trouble="no node has room", age_s=59.9)
    assert plan(1, stuck) == [TellTrouble("no node has room")]
    assert plan(1, replace(stuck, age_s=60.0)) == [
        TellTrouble("no node has room"),
        FailTasks("no node has room"),
        DeleteJob("j-1", "u1", "no node has room"),
    ]
    assert plan(0, stuck) == [DeleteJob("j-1", "u1", "no task is left for it")]


def test_while_one_job_renders_those_without_room_wait_for_it() -> None:
    stuck = job(2, trouble="no node has room", age_s=999.0)
    works = job(1, started=True, age_s=999.0)
    assert plan(2, works, stuck, held={"j-1": 1}) == [TellTrouble("no node has room")]
    done = job(1, JobPhase.SUCCEEDED)
    assert FailTasks("no node has room") in plan(2, done, stuck)


def test_a_job_that_broke_before_it_took_a_task_is_tried_again_alone_and_ever_later() -> None:
    def broken(number: int, age_s: float) -> JobView:
        return job(number, JobPhase.FAILED, "exit code 2", age_s=age_s)

    told = TellTrouble("exit code 2")
    assert plan(2, broken(1, 4.9)) == [told]
    assert plan(2, broken(1, 5.0)) == [told, CreateJob(2)], "one, though two tasks wait"
    assert plan(2, broken(1, 20.0), broken(2, 9.9)) == [told]
    assert plan(2, broken(1, 20.0), broken(2, 10.0)) == [told, CreateJob(3)]
    assert plan(2, broken(1, 20.0), broken(2, 10.0), job(3, started=True)) == [told], (
        "the next try is under way"
    )
    assert plan(2, broken(1, 60.0), broken(2, 30.0), job(3)) == [told, FailTasks("exit code 2")]
    well = job(2, JobPhase.SUCCEEDED)
    assert plan(2, broken(1, 60.0), well) == [CreateJob(3), CreateJob(4)], "one that ended well ends the row"
    taken = plan(2, broken(1, 60.0), job(2, started=True), held={"j-2": 1})
    assert taken == [CreateJob(3)], "and so does one that took a task"


@dataclass
class Cluster:
    """Kubernetes as its API behaves: names are unique, removal takes a while, what ended stays for a while, and a list may be
    old. `tasks` has the job that renders each unfinished task."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    seen: list[list[JobView]] = field(default_factory=lambda: [[]])
    tasks: dict[int, str | None] = field(default_factory=dict)

    def look(self, age: int) -> None:
        self.seen = [*self.seen, list(self.jobs.values())][-3:]
        listed = self.seen[max(-len(self.seen), -1 - age)]
        held = {GangId(name): 1 for name in self.tasks.values() if name is not None}
        for action in plan_jobs(len(self.tasks), listed, held, MOST, PENDING_S):
            match action:
                case CreateJob(number):
                    self.jobs.setdefault(f"j-{number}", job(number))
                case DeleteJob(name, uid, _) if name in self.jobs:
                    assert self.jobs[name].uid == uid
                    self.jobs[name] = replace(self.jobs[name], ending=True)
                case _:
                    pass

    def end(self, view: JobView, phase: JobPhase) -> None:
        self.jobs[view.name] = replace(view, phase=phase)
        self.ended.append(view.name)

    def act(self, what: str, n: int) -> None:
        free = [j for j in self.jobs.values() if j.active and j.name not in self.tasks.values()]
        running = [j for j in free if j.started]
        waiting = [task for task, name in self.tasks.items() if name is None]
        rendered = [task for task, name in self.tasks.items() if name is not None]
        match what:
            case "look":
                self.look(0)
            case "late":
                self.look(n % 3)
            case "submit":
                self.tasks[max(self.tasks, default=0) + 1] = None
            case "start" if free:
                self.jobs[free[0].name] = replace(free[0], started=True)
            case "claim" if waiting and running:
                self.tasks[waiting[0]] = running[0].name
            case "finish" if rendered:
                self._leave(rendered[0], JobPhase.SUCCEEDED)
            case "die" if rendered:
                self._leave(rendered[0], JobPhase.FAILED)
                self.tasks[rendered[0]] = None
            case "cancel" if waiting:
                del self.tasks[waiting[0]]
            case "idle" if running:
                self.end(running[0], JobPhase.SUCCEEDED)
            case "gone":  # what was removed, and what ended so long ago that every list has it as ended
                old = self.ended[:-6]
                self.jobs = {n: j for n, j in self.jobs.items() if not j.ending and n not in old}
            case _:
                pass

    def _leave(self, task: int, phase: JobPhase) -> None:
        name = self.tasks.pop(task)
        assert name is not None
        self.end(self.jobs[name], phase)


ACTS = ["look", "late", "submit", "start", "claim", "finish", "die", "cancel", "idle", "gone"]


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 5)), max_size=60))
@settings(max_examples=150)
def test_in_any_order_there_are_never_too_many_jobs_and_each_task_gets_one(
    steps: list[tuple[str, int]],
) -> None:
    cluster = Cluster()
    for what, n in steps:
        cluster.act(what, n)
        assert sum(j.active and not j.ending for j in cluster.jobs.values()) <= MOST
    for _ in range(4 * len(cluster.tasks) + 8):
        for what in ("gone", "look", "start", "claim", "finish", "idle"):
            cluster.act(what, 0)
    assert not cluster.tasks, "every task has had its job"
    assert not [j for j in cluster.jobs.values() if j.active], "no job is left over"
