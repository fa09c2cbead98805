"""The launcher on a real Redis, with a cluster that is a dictionary."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conftest import Stores, make_task

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.hosts.kubernetes.job_launcher import JobLauncher
from turnout.fleet.hosts.kubernetes.job_rules import JobPhase, JobView
from turnout.fleet.hosts.kubernetes.manifest_rules import GangTemplate, JobTerms, Manifest, read_job
from turnout.fleet.serving import EngineKind, ServedModel, VideoPart
from turnout.fleet.video_model_rules import Runner
from turnout.tasks.task_rules import Cancelled, GangId, Limits, State

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "gang", "image": "x"}]}}
PART = VideoPart(FAMILIES["wan-tiny-t2v"], runner=Runner.JOB)
VIDEO = ServedModel("wan-tiny-t2v", EngineKind.WAN, "builtin:wan-tiny-t2v", max_replicas=2, video=PART)


@dataclass
class Jobs:
    made: dict[str, Manifest] = field(default_factory=dict)
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def all(self) -> list[JobView]:
        views = [read_job({**job, **self.changes.get(name, {})}, [], 0.0) for name, job in self.made.items()]
        return [replace(view, uid=view.name) for view in views if view is not None]

    async def create(self, job: Manifest) -> bool:
        return self.made.setdefault(job["metadata"]["name"], job) is job

    async def delete(self, name: str, uid: str) -> None:
        assert uid == name
        self.made.pop(name, None)
        self.changes.pop(name, None)


def launcher(stores: Stores, jobs: Jobs, gangs: dict[str, GangTemplate]) -> JobLauncher:
    terms = JobTerms("turnout", "job", 60, 60, 45)
    return JobLauncher(jobs, terms, gangs, stores.models, stores.backlog, stores.tasks, 300.0)


async def test_each_task_gets_a_job_and_a_second_one_only_when_it_was_given_back(stores: Stores) -> None:
    jobs = Jobs()
    own = launcher(stores, jobs, {"*": GangTemplate(1, TEMPLATE)})
    await stores.models.put(VIDEO)
    first, second = [await stores.tasks.submit(make_task(), Limits()) for _ in range(2)]
    await own.look()
    await own.look()
    [job, other] = jobs.made.values()
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["args"][-1] == first.id
    declared = next(e["value"] for e in container["env"] if e["name"] == "TURNOUT_GANG_MODEL")
    assert json.loads(declared)["name"] == "wan-tiny-t2v"

    claimed = await stores.queue.claim(VIDEO.name, GangId("g"), Limits(), first.id)
    assert claimed is not None
    await stores.queue.release(VIDEO.name, GangId("g"), "drained", counts=False)
    jobs.changes[job["metadata"]["name"]] = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    await own.look()
    await own.look()
    assert (await stores.tasks.get(first.id)).state is State.QUEUED
    assert jobs.made[job["metadata"]["name"]] is not job, "a new one, for the next attempt"

    third = await stores.tasks.submit(make_task(), Limits())
    await own.look()
    assert len(jobs.made) == 2, "as many as the model may have gangs"
    await stores.tasks.apply(second.id, Cancelled(1.0))
    await own.look()
    assert other["metadata"]["name"] not in jobs.made, "the job of a cancelled task is removed"
    await own.look()
    assert third.id in {j["metadata"]["labels"]["turnout/task"] for j in jobs.made.values()}
    await stores.models.remove(VIDEO.name)
    await own.look()
    assert jobs.made == {}, "nothing is left of a model that was removed"


async def test_the_owner_of_a_task_is_told_why_its_job_failed(stores: Stores) -> None:
    jobs = Jobs()
    own = launcher(stores, jobs, {"*": GangTemplate(1, TEMPLATE)})
    await stores.models.put(VIDEO)
    task = await stores.tasks.submit(make_task(), Limits())
    await own.look()
    [name] = jobs.made
    late = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    jobs.changes[name] = {"status": {"conditions": [late]}}
    await own.look()
    failure = (await stores.tasks.get(task.id)).failure
    assert failure is not None and "deadline" in failure.message
    assert jobs.made == {}

    without = launcher(stores, jobs, {})
    lost = await stores.tasks.submit(make_task(), Limits())
    await without.look()
    failure = (await stores.tasks.get(lost.id)).failure
    assert failure is not None and "no pod template for wan-tiny-t2v" in failure.message
    assert JobPhase.ACTIVE not in {view.phase for view in await jobs.all()}
