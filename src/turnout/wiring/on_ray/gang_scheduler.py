"""Looks at the queues, the gangs and the nodes together: tells how each model stands, whose turn it is when there is
no room for all, and ends tasks of models that the cluster can never hold."""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, cast

import ray as _ray

from turnout.config import Config
from turnout.domain.errors import NotFound, Stale
from turnout.domain.slots import GangReport, Line, line_of, who_yields
from turnout.domain.tasks import Expired, GangId, TaskFailure
from turnout.domain.video_model import Model
from turnout.launch.ray.bundles import Resources, could_hold, gang_bundles, rank_bundle
from turnout.observe import get_log
from turnout.wiring.stores import Stores

ray = cast("Any", _ray)
log = get_log()


class Overseer:
    """A model is refused once it has not fitted for `ray_fit_s` without a break: long enough for an autoscaler to
    bring the nodes that it can bring."""

    def __init__(self, config: Config, stores: Stores) -> None:
        self._config = config
        self._wires = stores
        self._misfit_since: dict[str, float] = {}
        self._without_place_since: dict[str, float] = {}
        self._yielding: str | None = None

    async def look(self) -> tuple[dict[GangId, GangReport], dict[str, Line]]:
        """The gangs that live, and how each model's queue stands. Raises Unavailable."""
        gangs = await self._wires.gangs.all()
        lines = {model.name: await self._line(model, gangs) for model in self._config.models}
        nodes = await asyncio.to_thread(_node_sizes)
        fitting = [m for m in self._config.models if could_hold(nodes, gang_bundles(m), self._strategy)]
        for model in self._long_misfits(fitting, lines):
            await self._refuse(model, nodes)
        yielding = self._whose_turn_is_over(fitting, lines, gangs)
        if yielding is not None:
            lines[yielding] = replace(lines[yielding], yields=True)
        return gangs, lines

    @property
    def _strategy(self) -> Any:
        return self._config.ray_strategy

    async def _line(self, model: Model, gangs: dict[GangId, GangReport]) -> Line:
        figures = await self._wires.queue.figures(model.name)
        held = await self._wires.queue.holdings(model.name)
        mine = {gang: report for gang, report in gangs.items() if report.model == model.name}
        return line_of(model, figures.length, figures.running, figures.oldest_s, held, mine)

    def _long_misfits(self, fitting: Collection[Model], lines: dict[str, Line]) -> list[Model]:
        now = time.monotonic()
        misfits = [m for m in self._config.models if lines[m.name].waiting and m not in fitting]
        self._misfit_since = {m.name: self._misfit_since.get(m.name, now) for m in misfits}
        return [m for m in misfits if now - self._misfit_since[m.name] >= self._config.ray_fit_s]

    def _whose_turn_is_over(
        self, fitting: Collection[Model], lines: dict[str, Line], gangs: dict[GangId, GangReport]
    ) -> str | None:
        now, present = time.monotonic(), {gang.model for gang in gangs.values()}
        without_place = [m.name for m in fitting if lines[m.name].waiting and m.name not in present]
        if self._yielding in without_place:
            without_place.remove(self._yielding)  # it has just made room for another
        since = self._without_place_since
        self._without_place_since = {name: since.get(name, now) for name in without_place}
        waited_s = {name: now - at for name, at in self._without_place_since.items()}
        if self._yielding is not None and waited_s and max(waited_s.values()) >= self._config.ray_turn_s:
            return self._yielding  # until the one that waits has its place
        up_s = {
            gang.model: time.time() - gang.since
            for gang in sorted(gangs.values(), key=lambda gang: -gang.since)
            if not self._config.model(gang.model).min_replicas
        }
        over = who_yields(waited_s, up_s, self._config.ray_turn_s)
        if over is not None:
            log.info("turn over", model=over, waiting=sorted(waited_s))
        self._yielding = over
        return over

    async def _refuse(self, model: Model, nodes: Sequence[Resources]) -> None:
        reason = _misfit(model, nodes, self._config.ray_strategy)
        for task in await self._wires.tasks.unfinished_since(model.name, time.time()):
            try:
                await self._wires.tasks.apply(task, Expired(time.time(), TaskFailure("unplaceable", reason)))
                log.warning("task refused", task=task, reason=reason)
            except (Stale, NotFound):
                continue  # it ended meanwhile, or a gang has it


def _node_sizes() -> list[Resources]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _misfit(model: Model, nodes: Sequence[Resources], strategy: str) -> str:
    kind = next(iter(rank_bundle(model)))
    have = sum(node.get(kind, 0.0) for node in nodes)
    return (
        f"{model.name} needs {model.ranks} ranks with one {kind} each ({strategy}); "
        f"the cluster has {have:g} on {len(nodes)} nodes and got no more in time"
    )
