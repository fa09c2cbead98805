"""Looks at the queues, the gangs and the nodes together, and carries out what `ray_rules` decides: which slots have a gang, who
makes room when there is none for all, and which models are refused because the cluster can never hold them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import ray as _ray
from ray import serve as _serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from turnout.errors import NotFound, Stale
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.hosts.ray.bundle_rules import (
    Resources,
    Strategy,
    could_hold,
    gang_bundles,
    misfit_reason,
    wait_reason,
)
from turnout.fleet.hosts.ray.ray_ranks import names_lack_of_memory
from turnout.fleet.model_rules import Model
from turnout.fleet.ray_rules import (
    GangWaits,
    QueueState,
    Resident,
    deployment_name,
    plan_waits,
    queue_state,
    slots_to_fill,
)
from turnout.fleet.scaling_rules import times_since
from turnout.run.config import Config
from turnout.stores import Stores
from turnout.tasks.task_rules import Expired, GangId, TaskFailure
from turnout.telemetry.log import get_log

ray = cast("Any", _ray)
serve = cast("Any", _serve)
log = get_log()

_PATIENCE_S = 15.0  # before Serve is asked what it knows of gangs that do not come up
_ANSWER_S = 5.0
_KEEP_EVERY_S = 20.0


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The sizes of its nodes, what is free on all of them together, and the deployments whose replicas have a place."""

    nodes: list[Resources]
    free: Resources
    placed: frozenset[str]


class GangScheduler:
    """A model is refused once it has not fitted for `ray_fit_s` without a break: long enough for an autoscaler to
    bring the nodes that it can bring. Since when what holds is kept in Redis: no wait begins anew with the manager."""

    def __init__(self, config: Config, stores: Stores) -> None:
        self._config = config
        self._stores = stores
        self._waits: GangWaits | None = None
        self._kept_at = 0.0
        self._without_since: Mapping[str, float] = {}
        self._troubles: Mapping[str, str] = {}
        self._ask_at = 0.0
        self.reasons: Mapping[str, str] = {}  # why models whose tasks wait have no gang that could take them

    async def look(self) -> tuple[dict[GangId, GangReport], dict[str, QueueState]]:
        """The gangs that live, and how each model's queue stands. Raises Unavailable."""
        gangs = await self._stores.fleet.gangs.all()
        queues = {model.name: await self._queue(model, gangs) for model in self._config.models_on_ray}
        cluster = await asyncio.to_thread(_see_cluster)
        nodes = cluster.nodes
        self.reasons = await self._why_waiting(gangs, queues, cluster)
        now = await self._stores.link.now()
        before = await self._stores.fleet.gangs.waits() if self._waits is None else self._waits
        waits = plan_waits(
            before,
            waiting=[name for name, queue in queues.items() if queue.waiting],
            fitting=[
                m.name
                for m in self._config.models_on_ray
                if could_hold(nodes, gang_bundles(m), self._strategy)
            ],
            residents={
                model.name: resident
                for model in self._config.models_on_ray
                if (resident := _resident(model, gangs, queues[model.name])) is not None
            },
            turn_s=self._config.ray.ray_turn_s,
            now=now,
        )
        for name in waits.misfits(now, self._config.ray.ray_fit_s):
            await self._refuse(self._config.model(name), nodes)
        for name in waits.making_room:
            if name in before.making_room:
                continue
            log.info(
                "model gives up a gang for one that waits",
                model=name,
                waiting=sorted(waits.waiting_since),
            )
        idle_since: dict[str, float] = {}
        for model in self._config.models_on_ray:
            queue = replace(queues[model.name], yields=waits.yields(model.name))
            awake = {str(r.gang): r.slot for r in gangs.values() if r.model == model.name}
            wanted, idle = slots_to_fill(model, queue, awake, waits.idle_since, now)
            queues[model.name] = replace(queue, wanted=wanted)
            idle_since |= idle
        waits = replace(waits, idle_since=idle_since)
        if waits != self._waits or now - self._kept_at > _KEEP_EVERY_S:
            await self._stores.fleet.gangs.keep_waits(waits)
            self._kept_at = now
        self._waits = waits
        return gangs, queues

    async def _why_waiting(
        self, gangs: dict[GangId, GangReport], queues: dict[str, QueueState], cluster: _Cluster
    ) -> dict[str, str]:
        """A gang that comes up as it should tells of itself."""
        reports = {
            m.name: [g for g in gangs.values() if g.model == m.name] for m in self._config.models_on_ray
        }
        without = [
            name
            for name, mine in reports.items()
            if queues[name].waiting and not any(gang.ready for gang in mine)
        ]
        now = time.monotonic()
        self._without_since = times_since(self._without_since, without, now)
        told = {name: gang.trouble for name in without for gang in reports[name] if gang.trouble}
        late = [n for n in without if n not in told and now - self._without_since[n] > _PATIENCE_S]
        if late and now > self._ask_at:
            self._ask_at = now + _PATIENCE_S
            told |= await self._told_by_serve(late)
        self._troubles = {name: told.get(name) or self._troubles.get(name, "") for name in without}
        return {
            name: wait_reason(
                self._config.model(name),
                cluster.nodes,
                cluster.free,
                self._strategy,
                placed=not cluster.placed.isdisjoint(_deployments(self._config.model(name))),
                trouble=trouble,
            )
            for name, trouble in self._troubles.items()
            if trouble or not reports[name]
        }

    async def _told_by_serve(self, models: Sequence[str]) -> dict[str, str]:
        """A gang that was killed for its node's memory, leader and all, could not say so itself."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                said = await asyncio.to_thread(_serve_messages)
        except (TimeoutError, RayError, RayServeException) as err:
            log.warning("serve did not answer", error=type(err).__name__)
            return {}
        return {
            name: "its node ran low on memory"
            for name in models
            if any(names_lack_of_memory(said.get(one, "")) for one in _deployments(self._config.model(name)))
        }

    @property
    def _strategy(self) -> Strategy:
        return self._config.ray.ray_strategy

    async def _queue(self, model: Model, gangs: dict[GangId, GangReport]) -> QueueState:
        figures = await self._stores.backlog.figures(model.name)
        held = await self._stores.queue.holdings(model.name)
        mine = {gang: report for gang, report in gangs.items() if report.model == model.name}
        return queue_state(model, figures.length, figures.running, figures.oldest_s, held, mine)

    async def _refuse(self, model: Model, nodes: Sequence[Resources]) -> None:
        why = misfit_reason(model, nodes, self._strategy)
        failure = TaskFailure("unplaceable", f"{why}, and it got no more in {self._config.ray.ray_fit_s:g} s")
        for task in await self._stores.backlog.unfinished(model.name, 0.0):
            try:
                await self._stores.tasks.apply(task, Expired(time.time(), failure))
                log.warning("task refused", task=task, reason=failure.message)
            except (Stale, NotFound):
                continue  # it ended meanwhile, or a gang has it


def _resident(model: Model, gangs: Mapping[GangId, GangReport], queue: QueueState) -> Resident | None:
    """By the gang of the model that has been there longest."""
    oldest = min(
        (g for g in gangs.values() if g.model == model.name), key=lambda g: g.stays_since, default=None
    )
    if oldest is None:
        return None
    used = queue.waiting > 0 or bool(queue.busy)
    return Resident(oldest.stays_since, used, kept_warm=model.scaling.min_replicas > 0)


def _see_cluster() -> _Cluster:
    return _Cluster(
        [node["Resources"] for node in ray.nodes() if node["Alive"]],
        ray.available_resources(),
        frozenset(
            part
            for group in ray.util.placement_group_table().values()
            if group["state"] == "CREATED"
            for part in group["name"].split("#")  # Serve's: SERVE_REPLICA::application#deployment#replica
        ),
    )


def _deployments(model: Model) -> set[str]:
    return {deployment_name(model.name, slot) for slot in range(model.scaling.max_replicas)}


def _serve_messages() -> dict[str, str]:
    return {
        name: deployment.message
        for app in serve.status().applications.values()
        for name, deployment in app.deployments.items()
    }
