"""The launcher on a real Redis, with a cluster that is a dictionary."""

import json
import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.conftest import Stores, make_task

from turnout.errors import Unavailable
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.hosts.kubernetes.job_launcher import JobLauncher
from turnout.fleet.hosts.kubernetes.manifest_rules import GangTemplate, JobTerms, Manifest, read_job
from turnout.fleet.job_rules import JobView
from turnout.fleet.model_rules import EngineKind, Model, Runner, Scaling, VideoPart
from turnout.tasks.fairness_rules import FairQueue, class_base
from turnout.tasks.gang_tokens import JOB, GangTokens
from turnout.tasks.task_rules import (
    Cancelled,
    Finished,
    GangId,
    Limits,
    Priority,
    Result,
    State,
    Task,
    TaskId,
)

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "gang", "image": "x"}]}}
PART = VideoPart(FAMILIES["wan-tiny-t2v"], runner=Runner.JOB)
VIDEO = Model(
    "wan-tiny-t2v", EngineKind.VIDEO, "builtin:wan-tiny-t2v", video=PART, scaling=Scaling(max_replicas=2)
)
TOKENS = GangTokens(b"secret")
LIMITS = Limits(max_waiting=1000, max_running=1000, submits_per_minute=10**6)
FAILED = {"conditions": [{"type": "Failed", "status": "True"}]}
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
OUT_OF_MEMORY = {"containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}


@dataclass
class Jobs:
    """`ended` has the status of each job that has, `pods` that of its pod; all are as old as `age_s`."""

    made: dict[str, Manifest] = field(default_factory=dict)
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    age_s: float = 10.0
    secrets: dict[str, Manifest] = field(default_factory=dict)
    secrets_refused: bool = False
    suspends: bool = False

    async def all(self) -> list[JobView]:
        views = [
            read_job(
                {**job, "status": self.ended.get(name, {})}, [{"status": self.pods.get(name, {})}], self.age_s
            )
            for name, job in self.made.items()
        ]
        return [replace(view, uid=view.name) for view in views if view is not None]

    async def create(self, job: Manifest) -> JobView | None:
        name = job["metadata"]["name"]
        if self.made.setdefault(name, job) is not job:
            return None
        job["spec"]["suspend"] = self.suspends
        view = read_job(job, (), 0.0)
        return replace(view, uid=name) if view else None

    async def create_secret(self, secret: Manifest) -> None:
        if self.secrets_refused:
            raise Unavailable("Kubernetes refused")
        [owner] = secret["metadata"]["ownerReferences"]
        assert owner["uid"] in self.made, "its job is there first"
        self.secrets.setdefault(secret["metadata"]["name"], secret)

    async def delete(self, name: str, uid: str) -> None:
        assert uid == name
        self.made.pop(name, None)

    @property
    def active(self) -> list[str]:
        return [name for name in self.made if name not in self.ended]


async def tokens() -> GangTokens:
    return TOKENS


async def launcher(stores: Stores, jobs: Jobs, gangs: dict[str, GangTemplate] | None = None) -> JobLauncher:
    await stores.fleet.models.put(VIDEO)
    terms = JobTerms("turnout", "job", "http://gateway:8000", 60, 90, 60, 45)
    gangs = {"*": GangTemplate(1, TEMPLATE)} if gangs is None else gangs
    return JobLauncher(
        jobs,
        terms,
        tokens,
        gangs,
        stores.fleet.models,
        stores.backlog,
        stores.tasks,
        stores.queue,
        pending_s=0.0,
    )


async def render(stores: Stores, jobs: Jobs, name: str) -> Task:
    """What the gang of a job does: takes the task that is next, renders it, leaves."""
    task = await stores.queue.claim(VIDEO.name, GangId(name), LIMITS)
    assert task is not None
    await stores.tasks.apply(task.id, Finished(1.0, task.attempt, Result("v", "t", "s", 1)))
    await stores.queue.leave(VIDEO.name, GangId(name))
    jobs.ended[name] = COMPLETE
    return task


async def test_in_job_mode_tenants_and_priorities_are_served_in_the_queues_order_past_any_number_of_tasks(
    stores: Stores,
) -> None:
    jobs = Jobs()
    own = await launcher(stores, jobs)
    expected = FairQueue[TaskId]()
    for number in range(1, 141):
        tenant = "late" if number > 120 else "early"
        priority = Priority.HIGH if number % 10 == 0 else Priority.NORMAL
        task = await stores.tasks.submit(make_task(tenant, priority=priority), LIMITS)
        expected.join(task.tenant, class_base(priority) + number, task.id)
    served: list[TaskId] = []
    while await own.look() or jobs.active:
        assert len(jobs.active) == min(2, 140 - len(served)), "never more than tasks, nor than max_replicas"
        served.append((await render(stores, jobs, jobs.active[0])).id)
    planned = [expected.claim({}, 1000) for _ in range(140)]
    assert served == planned
    high = [n for n, task in enumerate(served) if (await stores.tasks.get(task)).priority is Priority.HIGH]
    assert len(high) == 14 and high[-1] < 25, "the urgent ones were not forgotten behind a hundred others"


async def test_a_job_is_made_for_each_task_and_removed_with_the_task_or_the_model(stores: Stores) -> None:
    jobs = Jobs()
    own = await launcher(stores, jobs)
    first, second, _ = [await stores.tasks.submit(make_task(), LIMITS) for _ in range(3)]
    await own.look()
    await own.look()
    assert len(jobs.made) == 2, "as many as the model may have gangs"
    [container] = next(iter(jobs.made.values()))["spec"]["template"]["spec"]["containers"]
    declared = next(e["value"] for e in container["env"] if e["name"] == "TURNOUT_GANG_MODEL")
    assert json.loads(declared)["name"] == "wan-tiny-t2v"
    for task in (first, second):
        await stores.tasks.apply(task.id, Cancelled(1.0))
    await own.look()
    assert len(jobs.made) == 1
    await stores.fleet.models.remove(VIDEO.name)
    await own.look()
    assert jobs.made == {}, "nothing is left of a model that was removed"


async def test_each_job_gets_a_token_for_the_gang_of_its_name_that_ends_with_it(stores: Stores) -> None:
    jobs = Jobs()
    own = await launcher(stores, jobs)
    for _ in range(2):
        await stores.tasks.submit(make_task(), LIMITS)
    await own.look()
    assert jobs.secrets.keys() == jobs.made.keys() and len(jobs.made) == 2
    for name, secret in jobs.secrets.items():
        right = TOKENS.read(secret["stringData"]["token"])
        assert right is not None
        assert (right.holder, right.gang, right.model, right.task) == (JOB, name, VIDEO.name, None)
        assert 0 < right.expires_at - time.time() <= own.terms.end_s


async def test_a_job_whose_token_could_not_be_made_gets_it_at_a_later_look(stores: Stores) -> None:
    jobs = Jobs(secrets_refused=True)
    await stores.tasks.submit(make_task(), LIMITS)
    with pytest.raises(Unavailable):
        await (await launcher(stores, jobs)).look()
    assert len(jobs.made) == 1 and not jobs.secrets
    jobs.secrets_refused = False
    own = await launcher(stores, jobs)  # the one before died meanwhile
    await own.look()
    assert jobs.secrets.keys() == jobs.made.keys() and len(jobs.made) == 1
    right = TOKENS.read(jobs.secrets[jobs.active[0]]["stringData"]["token"])
    assert right is not None and right.expires_at - time.time() <= own.terms.end_s - jobs.age_s
    jobs.secrets.clear()
    await own.look()
    assert not jobs.secrets, "who has given it does not ask again"
    await (await launcher(stores, jobs)).look()
    jobs.secrets.clear()
    jobs.pods[jobs.active[0]] = {"phase": "Running"}
    await (await launcher(stores, jobs)).look()
    assert not jobs.secrets, "a job that runs has it"


async def test_a_job_that_a_queue_of_the_cluster_holds_back_gets_its_token_when_it_may_begin(
    stores: Stores,
) -> None:
    jobs = Jobs(suspends=True)
    own = await launcher(stores, jobs)
    await stores.tasks.submit(make_task(), LIMITS)
    await own.look()
    await own.look()
    assert len(jobs.made) == 1 and not jobs.secrets, "its time has not begun"
    [job] = jobs.made.values()
    job["spec"]["suspend"] = False
    await own.look()
    assert jobs.secrets.keys() == jobs.made.keys()


async def test_a_kept_gang_is_replaced_when_its_model_is_declared_anew(stores: Stores) -> None:
    jobs = Jobs()
    own = await launcher(stores, jobs)
    own.terms = replace(own.terms, keep_s=60, stays_s=600)
    await stores.tasks.submit(make_task(), LIMITS)
    await own.look()
    [first] = jobs.active
    jobs.pods[first] = {"phase": "Running"}
    await own.look()
    assert jobs.active == [first]
    await stores.fleet.models.put(replace(VIDEO, dtype="float32"))
    await own.look()
    await own.look()
    [second] = jobs.active
    assert second != first
    jobs.pods[second] = {"phase": "Running"}
    await own.look()
    assert jobs.active == [second]


async def test_a_jobs_number_never_comes_again_though_all_ended_jobs_have_expired(stores: Stores) -> None:
    jobs, names = Jobs(), list[str]()
    own = await launcher(stores, jobs)
    for _ in range(3):
        await stores.tasks.submit(make_task(), LIMITS)
        await own.look()
        names += jobs.active
        await render(stores, jobs, jobs.active[0])
        jobs.made.clear()
    assert [name.rpartition("-")[2] for name in names] == ["1", "2", "3"]


async def test_a_task_whose_job_died_is_tried_again_and_ends_with_the_reason_when_its_attempts_are_used_up(
    stores: Stores,
) -> None:
    jobs = Jobs()
    own = await launcher(stores, jobs)
    task = await stores.tasks.submit(make_task(), LIMITS)
    for attempt in range(1, task.max_attempts + 1):
        await own.look()
        [name] = jobs.active
        claimed = await stores.queue.claim(VIDEO.name, GangId(name), LIMITS)
        assert claimed is not None and claimed.attempt == attempt
        jobs.ended[name], jobs.pods[name] = FAILED, OUT_OF_MEMORY
    waits = await stores.tasks.submit(make_task(), LIMITS)
    await own.look()
    failure = (await stores.tasks.get(task.id)).failure
    assert failure is not None and failure.code == "attempts_exhausted" and "OOMKilled" in failure.message
    assert (await stores.tasks.get(waits.id)).state is State.QUEUED, "another task is not blamed"
    await own.look()
    assert len(jobs.active) == 1


async def test_tasks_that_wait_for_jobs_that_cannot_run_are_told_why_and_fail(stores: Stores) -> None:
    jobs = Jobs()
    own = await launcher(stores, jobs)
    own.pending_s = 3600.0
    task = await stores.tasks.submit(make_task(), LIMITS)
    await own.look()
    [name] = jobs.active
    jobs.pods[name] = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    await own.look()
    assert own.reasons == {VIDEO.name: "the image of its pods cannot be pulled (ImagePullBackOff)"}
    assert (await stores.tasks.get(task.id)).state is State.QUEUED
    own.pending_s = 0.0
    await own.look()
    failure = (await stores.tasks.get(task.id)).failure
    assert failure is not None and "ImagePullBackOff" in failure.message
    await own.look()
    assert (jobs.made, own.reasons) == ({}, {})


async def test_a_model_without_a_pod_template_fails_its_tasks(stores: Stores) -> None:
    own = await launcher(stores, Jobs(), {})
    task = await stores.tasks.submit(make_task(), LIMITS)
    await own.look()
    failure = (await stores.tasks.get(task.id)).failure
    assert failure is not None and "no pod template for wan-tiny-t2v" in failure.message
