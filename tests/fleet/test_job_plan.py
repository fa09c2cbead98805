"""Jobs for tasks: whatever is seen late, twice or never, no task has two jobs and none is left over."""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import make_task

from turnout.fleet.hosts.kubernetes.job_rules import (
    CreateJob,
    DeleteJob,
    FailTask,
    JobPhase,
    JobView,
    plan_jobs,
)
from turnout.tasks.task_rules import State, Task, TaskId

PARALLEL, PENDING_S = 2, 60.0


def job(task: Task, phase: JobPhase = JobPhase.ACTIVE, **more: object) -> JobView:
    return replace(JobView(f"j-{task.id}", "u", task.id, 0, phase), **more)  # type: ignore[arg-type]


def test_tasks_get_jobs_up_to_the_bound_and_tenants_take_turns() -> None:
    a, b, c = make_task("a"), make_task("a"), make_task("b")
    assert plan_jobs([a, b, c], [], PARALLEL, PENDING_S) == [CreateJob(a.id, 0), CreateJob(c.id, 0)]
    assert plan_jobs([a, b, c], [job(a)], PARALLEL, PENDING_S) == [CreateJob(c.id, 0)]
    assert plan_jobs([a, b, c], [job(a), job(c)], PARALLEL, PENDING_S) == []


def test_a_job_whose_task_has_ended_is_removed_unless_it_has_ended_itself() -> None:
    task = make_task()
    assert plan_jobs([], [job(task)], PARALLEL, PENDING_S) == [
        DeleteJob(f"j-{task.id}", "u", "its task has ended")
    ]
    assert plan_jobs([], [job(task, JobPhase.SUCCEEDED)], PARALLEL, PENDING_S) == []


def test_a_task_that_was_given_back_gets_another_job_and_one_that_was_never_taken_fails() -> None:
    task = make_task()
    ended = job(task, JobPhase.FAILED)
    again = plan_jobs([replace(task, attempt=1)], [ended], PARALLEL, PENDING_S)
    assert again == [DeleteJob(ended.name, "u", "its task waits again")]
    [failed, _] = plan_jobs([task], [ended], PARALLEL, PENDING_S)
    assert isinstance(failed, FailTask) and "before it had taken the task" in failed.reason


def test_trouble_is_told_to_the_owner_after_a_while_and_at_once_when_it_ended_the_job() -> None:
    task = make_task()
    stuck = job(task, trouble="no node has room", age_s=59.0)
    assert plan_jobs([task], [stuck], PARALLEL, PENDING_S) == []
    late = plan_jobs([task], [replace(stuck, age_s=60.0)], PARALLEL, PENDING_S)
    assert late[0] == FailTask(task.id, "no node has room")
    killed = job(task, JobPhase.FAILED, trouble="OOMKilled")
    assert FailTask(task.id, "OOMKilled") in plan_jobs(
        [replace(task, attempt=1)], [killed], PARALLEL, PENDING_S
    )


@dataclass
class Cluster:
    """Kubernetes as its API behaves: names are unique, removal takes a while, and a list may be old."""

    jobs: dict[str, JobView] = field(default_factory=dict)
    seen: list[list[JobView]] = field(default_factory=lambda: [[]])
    uids: int = 0

    def create(self, action: CreateJob) -> None:
        name = f"j-{action.task}"
        if name not in self.jobs:
            self.uids += 1
            self.jobs[name] = JobView(name, str(self.uids), action.task, action.attempt, JobPhase.ACTIVE)

    def delete(self, action: DeleteJob) -> None:
        found = self.jobs.get(action.name)
        if found is not None and found.uid == action.uid:
            self.jobs[action.name] = replace(found, ending=True)

    def listed(self, age: int) -> list[JobView]:
        self.seen = [*self.seen, list(self.jobs.values())][-4:]
        return self.seen[max(-len(self.seen), -1 - age)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["look", "late", "submit", "cancel", "claim", "finish", "die", "drain", "gone"]),
            st.integers(0, 5),
        ),
        max_size=60,
    )
)
@settings(max_examples=150, deadline=None)
def test_in_any_order_no_task_has_two_jobs_and_none_is_left_over(steps: list[tuple[str, int]]) -> None:
    cluster, tasks = Cluster(), dict[TaskId, Task]()

    def look(age: int) -> None:
        jobs = cluster.listed(age)
        unfinished = [t for t in tasks.values() if not t.ended]
        own = [j for j in jobs if j.task in {t.id for t in unfinished}]
        strangers = [j for j in jobs if j not in own]
        for action in (
            *plan_jobs(unfinished, own, PARALLEL, PENDING_S),
            *plan_jobs((), strangers, 0, PENDING_S),
        ):
            match action:
                case CreateJob():
                    cluster.create(action)
                case DeleteJob():
                    cluster.delete(action)
                case FailTask(task, _) if tasks[task].state is State.QUEUED:
                    tasks[task] = replace(tasks[task], state=State.FAILED)
                case FailTask():
                    pass

    def end(view: JobView, phase: JobPhase) -> None:
        cluster.jobs[view.name] = replace(view, phase=phase)

    for what, n in steps:
        active = [j for j in cluster.jobs.values() if j.active and not j.ending]
        view = active[n % len(active)] if active else None
        task = tasks.get(view.task) if view else None
        match what:
            case "look":
                look(0)
            case "late":
                look(n)
            case "submit":
                made = make_task(f"t{n % 3}")
                tasks[made.id] = made
            case "cancel" if tasks:
                one = list(tasks.values())[n % len(tasks)]
                if not one.ended:
                    tasks[one.id] = replace(one, state=State.CANCELLED)
            case "claim" if task is not None and task.state is State.QUEUED:
                tasks[task.id] = replace(task, state=State.IN_PROGRESS, attempt=task.attempt + 1)
            case "finish" if view and task is not None and task.state is State.IN_PROGRESS:
                tasks[task.id] = replace(task, state=State.COMPLETED)
                end(view, JobPhase.SUCCEEDED)
            case "die" if view:
                end(view, JobPhase.FAILED)
            case "drain" if view and task is not None and task.state is State.IN_PROGRESS:
                tasks[task.id] = replace(task, state=State.QUEUED)
                end(view, JobPhase.FAILED)
            case "gone":
                cluster.jobs = {n: j for n, j in cluster.jobs.items() if not j.ending}
            case _:
                pass
        made_for = [j.task for j in cluster.jobs.values()]
        assert len(made_for) == len(set(made_for))

    for _ in range(
        4 * len(tasks) + 4
    ):  # leases run out, removals are done, and the launcher sees what is there
        for one in list(tasks.values()):
            holder = cluster.jobs.get(f"j-{one.id}")
            if one.state is State.IN_PROGRESS and (holder is None or not holder.active or holder.ending):
                tasks[one.id] = replace(one, state=State.QUEUED)
            elif one.state is State.IN_PROGRESS and holder:
                tasks[one.id] = replace(one, state=State.COMPLETED)
                end(holder, JobPhase.SUCCEEDED)
            elif one.state is State.QUEUED and holder and holder.active and not holder.ending:
                tasks[one.id] = replace(one, state=State.IN_PROGRESS, attempt=one.attempt + 1)
        cluster.jobs = {n: j for n, j in cluster.jobs.items() if not j.ending}
        look(0)
    assert all(task.ended for task in tasks.values()), "every task has had its job"
    cluster.jobs = {n: j for n, j in cluster.jobs.items() if not j.ending}
    assert not [j for j in cluster.jobs.values() if j.active], "no job is left over"
