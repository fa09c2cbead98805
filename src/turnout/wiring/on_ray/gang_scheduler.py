"""Looks at the queues, the gangs and the nodes together, and carries out what `domain.slots` decides for gangs that Ray
places: whose turn it is when there is no room for all, and which models are refused because the cluster can never hold
them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import ray as _ray

from turnout.config import Config
from turnout.domain.errors import NotFound, Stale
from turnout.domain.slots import GangReport, GangTurns, QueueState, queue_state, take_turns
from turnout.domain.tasks import Expired, GangId, TaskFailure
from turnout.domain.video_model import Model
from turnout.launch.ray.bundles import (
    Resources,
    Strategy,
    could_hold,
    gang_bundles,
    misfit_reason,
    wait_reason,
)
from turnout.observe import get_log
from turnout.wiring.stores import Stores

ray = cast("Any", _ray)
log = get_log()


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The sizes of its nodes, what is free on all of them together, and the names of placement groups that have a place."""

    nodes: list[Resources]
    free: Resources
    placed: list[str]


class GangScheduler:
    """A model is refused once it has not fitted for `ray_fit_s` without a break: long enough for an autoscaler to
    bring the nodes that it can bring."""

    def __init__(self, config: Config, stores: Stores) -> None:
        self._config = config
        self._stores = stores
        self._turns = GangTurns()
        self._troubles: dict[str, str] = {}
        self.reasons: Mapping[str, str] = {}  # why models whose tasks wait have no gang that could take them

    async def look(self) -> tuple[dict[GangId, GangReport], dict[str, QueueState]]:
        """The gangs that live, and how each model's queue stands. Raises Unavailable."""
        gangs = await self._stores.gangs.all()
        queues = {model.name: await self._queue(model, gangs) for model in self._config.models_on_ray}
        cluster = await asyncio.to_thread(_see_cluster)
        nodes = cluster.nodes
        self.reasons = self._why_waiting(gangs, queues, cluster)
        now, before = time.monotonic(), self._turns
        self._turns = take_turns(
            before,
            waiting=[name for name, queue in queues.items() if queue.waiting],
            fitting=[
                m.name
                for m in self._config.models_on_ray
                if could_hold(nodes, gang_bundles(m), self._strategy)
            ],
            resident_s=_resident_s(gangs, time.time()),
            kept_warm=[m.name for m in self._config.models_on_ray if m.min_replicas],
            turn_s=self._config.ray_turn_s,
            now=now,
        )
        for name in self._turns.misfits(now, self._config.ray_fit_s):
            await self._refuse(self._config.model(name), nodes)
        yielding = self._turns.yielding
        if yielding is not None:
            queues[yielding] = replace(queues[yielding], yields=True)
            if yielding != before.yielding:
                log.info("turn over", model=yielding, waiting=sorted(self._turns.waiting_since))
        return gangs, queues

    def _why_waiting(
        self, gangs: dict[GangId, GangReport], queues: dict[str, QueueState], cluster: _Cluster
    ) -> dict[str, str]:
        reasons: dict[str, str] = {}
        for model in self._config.models_on_ray:
            mine = [gang for gang in gangs.values() if gang.model == model.name]
            if not queues[model.name].waiting or any(gang.ready for gang in mine):
                self._troubles.pop(model.name, None)
                continue
            for gang in mine:
                self._troubles[model.name] = gang.trouble or self._troubles.get(model.name, "")
            reasons[model.name] = wait_reason(
                model,
                cluster.nodes,
                cluster.free,
                self._strategy,
                placed=any(f"#VideoGenerator-{model.name}-" in name for name in cluster.placed),
                trouble=self._troubles.get(model.name, ""),
            )
        return reasons

    @property
    def _strategy(self) -> Strategy:
        return self._config.ray_strategy

    async def _queue(self, model: Model, gangs: dict[GangId, GangReport]) -> QueueState:
        figures = await self._stores.backlog.figures(model.name)
        held = await self._stores.queue.holdings(model.name)
        mine = {gang: report for gang, report in gangs.items() if report.model == model.name}
        return queue_state(model, figures.length, figures.running, figures.oldest_s, held, mine)

    async def _refuse(self, model: Model, nodes: Sequence[Resources]) -> None:
        why = misfit_reason(model, nodes, self._strategy)
        failure = TaskFailure("unplaceable", f"{why}, and it got no more in {self._config.ray_fit_s:g} s")
        for task in await self._stores.backlog.unfinished(model.name, 0.0):
            try:
                await self._stores.tasks.apply(task, Expired(time.time(), failure))
                log.warning("task refused", task=task, reason=failure.message)
            except (Stale, NotFound):
                continue  # it ended meanwhile, or a gang has it


def _resident_s(gangs: dict[GangId, GangReport], now: float) -> dict[str, float]:
    """How long the turn of each model that has a gang has lasted."""
    resident_s: dict[str, float] = {}
    for gang in gangs.values():
        resident_s[gang.model] = max(resident_s.get(gang.model, 0.0), gang.resident_s(now))
    return resident_s


def _see_cluster() -> _Cluster:
    return _Cluster(
        [node["Resources"] for node in ray.nodes() if node["Alive"]],
        ray.available_resources(),
        [group["name"] for group in ray.util.placement_group_table().values() if group["state"] == "CREATED"],
    )
