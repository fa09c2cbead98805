"""Carries out on Kubernetes what `job_rules` decides: jobs for the tasks of the models whose runner is `job`.

Jobs are read before tasks, so that what became of a task is never older than what became of its job. Whatever fails is tried
again at the next look, from what is there then; between two looks nothing has to be kept but the number of the last job.

A job's gang calls a gateway with a token of its own, which lies in a Secret that goes with the job. The job is made first, because
the Secret names it as its owner; until then its pod waits. So a launcher that dies between the two leaves no token behind.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, cast

from turnout.errors import Misconfigured, NotFound, Stale, Unavailable
from turnout.extras import KUBERNETES
from turnout.fleet.fleet_records import MODEL
from turnout.fleet.hosts.kubernetes.manifest_rules import (
    JOB,
    LAUNCHER,
    GangTemplate,
    JobKind,
    JobSpec,
    JobTerms,
    Manifest,
    making,
    manifest,
    model_label,
    read_job,
    token_secret,
)
from turnout.fleet.job_rules import (
    CreateJob,
    DeleteJob,
    FailTasks,
    JobAction,
    JobView,
    PutBack,
    TellTrouble,
    plan_jobs,
)
from turnout.fleet.model_rules import Model, Runner
from turnout.fleet.model_store import ModelStore
from turnout.tasks import gang_tokens
from turnout.tasks.backlog import Backlog
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_queue import TaskQueue
from turnout.tasks.task_rules import Expired, TaskFailure
from turnout.telemetry.log import get_log

log = get_log()

_CALL_S = 20.0
_PLURALS: dict[JobKind, tuple[str, str, str]] = {
    "job": ("batch", "v1", "Job"),
    "pytorchjob": ("kubeflow.org", "v1", "PyTorchJob"),
    "rayjob": ("ray.io", "v1", "RayJob"),
}


class JobStore(Protocol):
    """The jobs of one launcher, on a cluster. All raise Unavailable."""

    async def all(self) -> list[JobView]: ...

    async def create(self, job: Manifest) -> JobView | None:
        """As it was taken; None when there is one of that name."""
        ...

    async def create_secret(self, secret: Manifest) -> None:
        """Nothing when there is one of that name."""
        ...

    async def delete(self, name: str, uid: str) -> None:
        """With its pods; nothing when it is gone, or another one has its name."""
        ...


@dataclass(slots=True)
class JobLauncher:
    """`gangs` has the pods of each model's gangs; `*` stands for all others. `tokens` gives what signs for the gangs now. `reasons` says why tasks
    of models wait whose jobs are in trouble, for `FleetManager`. `given` are the uids of jobs that are known to have their token."""

    jobs: JobStore
    terms: JobTerms
    tokens: Callable[[], Awaitable[gang_tokens.GangTokens]]
    gangs: Mapping[str, GangTemplate]
    models: ModelStore
    backlog: Backlog
    tasks: TaskLog
    queue: TaskQueue
    pending_s: float
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    given: set[str] = field(default_factory=set[str])

    async def look(self) -> None:
        """Raises Unavailable."""
        jobs = await self.jobs.all()
        self.given &= {job.uid for job in jobs}
        models = {
            name: model
            for name, model in (await self.models.all()).items()
            if model.video is not None and model.video.runner is Runner.JOB
        }
        for name, model in models.items():
            own = [job for job in jobs if job.model == model_label(name)]
            for job in own:
                await self._give_token(name, job)
            figures, held = await self.backlog.figures(name), await self.queue.holdings(name)
            made = await self.models.jobs_made(name)
            most, made_of = model.scaling.max_replicas, self._made_of(model)
            plan = plan_jobs(figures.length, own, held, most, self.pending_s, made, made_of)
            await self._carry_out(plan, model)
        known = {model_label(name) for name in models}
        for job in jobs:
            if job.model not in known and job.active and not job.ending:
                await self._delete(job.name, job.uid, "its model was removed")

    async def _carry_out(self, plan: Sequence[JobAction], model: Model) -> None:
        self.reasons.pop(model.name, None)
        for action in plan:
            match action:
                case CreateJob(number):
                    await self._create(number, model)
                case DeleteJob(name, uid, reason):
                    await self._delete(name, uid, reason)
                case PutBack(gang, reason):
                    for task in await self.queue.release(model.name, gang, reason):
                        log.warning("task put back", **task.log_ids, reason=reason)
                case FailTasks(reason):
                    await self._fail(model.name, reason, self.pending_s)
                case TellTrouble(reason):
                    self.reasons[model.name] = reason

    async def _create(self, number: int, model: Model) -> None:
        gang = self._gang(model)
        if gang is None:
            reason = f"there is no pod template for {model.name} (kubernetes_jobs.gangs)"
            return await self._fail(model.name, reason, 0.0)
        spec = JobSpec(model.name, number, MODEL.dump(model).decode())
        job = await self.jobs.create(manifest(self.terms, gang, spec))
        if job is None:
            return
        await self.models.keep_jobs_made(model.name, number)
        log.info("job made", job=spec.name, model=model.name, pods=gang.pods)
        await self._give_token(model.name, job)

    def _gang(self, model: Model) -> GangTemplate | None:
        return self.gangs.get(model.name) or self.gangs.get("*")

    def _made_of(self, model: Model) -> str:
        gang = self._gang(model)
        return making(self.terms, gang, JobSpec(model.name, 0, MODEL.dump(model).decode())) if gang else ""

    async def _give_token(self, model: str, job: JobView) -> None:
        """The gang's right ends with the job, whose time begins when no queue holds it back. Whoever was there before may have
        given it."""
        if not job.waits or job.suspended or job.uid in self.given:
            return
        ends_at = time.time() - job.age_s + self.terms.end_s
        right = gang_tokens.GangRight(gang_tokens.JOB, job.gang, model, ends_at)
        token = (await self.tokens()).token(right)
        await self.jobs.create_secret(token_secret(self.terms, job.name, job.uid, token))
        self.given.add(job.uid)

    async def _delete(self, name: str, uid: str, reason: str) -> None:
        log.info("job removed", job=name, reason=reason)
        await self.jobs.delete(name, uid)

    async def _fail(self, model: str, reason: str, older_than_s: float) -> None:
        failure = TaskFailure(
            "unplaceable", f"Jobs for the task on Kubernetes failed: {reason}.", {"reason": reason}
        )
        for task in await self.backlog.unfinished(model, older_than_s):
            try:
                await self.tasks.apply(task, Expired(time.time(), failure))
                log.warning("task failed", task=task, reason=reason)
            except (Stale, NotFound):
                continue  # a gang has it, or it has ended


class ClusterJobs:
    """A `JobStore` by the API of the cluster that this process runs in, or that KUBECONFIG names."""

    def __init__(self, terms: JobTerms, namespace: str | None) -> None:
        try:
            from lightkube import AsyncClient, KubeConfig, generic_resource
            from lightkube.core.exceptions import ConfigError
            from lightkube.resources.core_v1 import Pod, Secret
        except ImportError as err:
            raise Misconfigured(f"jobs on Kubernetes need lightkube: {KUBERNETES} ({err})") from err
        try:
            # Its configuration comes from the environment, and nothing else: the API is not called by a proxy.
            self._client = cast("Any", AsyncClient)(
                KubeConfig.from_env(), namespace=namespace, field_manager="turnout", trust_env=False
            )
        except ConfigError as err:
            raise Misconfigured(f"no Kubernetes: {err}") from err
        group, version, kind = _PLURALS[terms.kind]
        self._kind: Any = cast("Any", generic_resource).create_namespaced_resource(
            group, version, kind, f"{kind.lower()}s"
        )
        self._pod: Any = Pod
        self._secret: Any = Secret
        self._labels = {LAUNCHER: terms.launcher}

    async def all(self) -> list[JobView]:
        pods: dict[str, list[Mapping[str, Any]]] = {}
        now = time.time()
        async with _translated():
            found = [job.to_dict() async for job in self._client.list(self._kind, labels=self._labels)]
            async for pod in self._client.list(self._pod, labels=self._labels):
                said = pod.to_dict()
                pods.setdefault(said["metadata"]["labels"].get(JOB, ""), []).append(said)
        views = [read_job(job, pods.get(job["metadata"]["name"], ()), now - _began_at(job)) for job in found]
        return [view for view in views if view is not None]

    async def create(self, job: Manifest) -> JobView | None:
        made = await self._create(self._kind.from_dict(job))
        return read_job(made.to_dict(), (), 0.0) if made is not None else None

    async def create_secret(self, secret: Manifest) -> None:
        await self._create(self._secret.from_dict(secret))

    async def _create(self, what: Any) -> Any | None:
        """What was made; None when there is one of that name."""
        async with _translated():
            from lightkube.core.exceptions import ApiError

            try:
                return await self._client.create(what)
            except ApiError as err:
                if cast("Any", err).status.code != 409:
                    raise
                return None

    async def delete(self, name: str, uid: str) -> None:
        async with _translated():
            from lightkube.core.exceptions import ApiError
            from lightkube.types import CascadeType

            try:
                seen = (await self._client.get(self._kind, name)).to_dict()
                if seen["metadata"].get("uid") == uid:
                    # It stays until its pods are gone: a new one of that name would meet them.
                    await self._client.delete(self._kind, name, cascade=CascadeType.FOREGROUND)
            except ApiError as err:
                if cast("Any", err).status.code not in (404, 409):
                    raise

    async def find_owner(self, config_map: str) -> Mapping[str, Any] | None:
        """A reference to a ConfigMap: jobs go when it goes, as with the chart. None: it is not there, or not for us to see."""
        from lightkube.resources.core_v1 import ConfigMap

        try:
            async with _translated():
                seen = (await self._client.get(cast("Any", ConfigMap), config_map)).to_dict()
        except Unavailable as err:
            log.warning(
                "config map not found, jobs are made without an owner", config_map=config_map, error=str(err)
            )
            return None
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": config_map, "uid": seen["metadata"]["uid"]}


@asynccontextmanager
async def _translated() -> AsyncGenerator[None]:
    """A deadline for calls of the API, and its errors as ours."""
    try:
        async with asyncio.timeout(_CALL_S):
            yield
    except TimeoutError as err:
        raise Unavailable(f"Kubernetes did not answer within {_CALL_S:.0f} s") from err
    except Exception as err:
        if type(err).__module__.partition(".")[0] not in ("lightkube", "httpx", "httpx2"):
            raise
        raise Unavailable(f"Kubernetes refused: {err}"[:500]) from err


def _began_at(job: Mapping[str, Any]) -> float:
    """When its time began: a job that a queue held back has a start of its own."""
    status: Mapping[str, Any] = job.get("status") or {}
    said = status.get("startTime") or job["metadata"].get("creationTimestamp")
    if isinstance(said, datetime):
        return said.timestamp()
    return datetime.fromisoformat(str(said)).timestamp() if said else time.time()
