"""A machine's agent: owns the gangs on it, starts them when tasks wait and stops them when none do."""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnout.domain.errors import Unavailable
from turnout.domain.models import Model
from turnout.domain.policy import GangView, StartGang, StopGang, plan_gangs
from turnout.domain.tasks import GangId
from turnout.observe import get_log
from turnout.ports import Process, Queue

log = get_log()

_TICK_S = 0.25

StartGangProcess = Callable[[Model, GangId], Coroutine[Any, Any, Process]]


@dataclass(slots=True)
class _Gang:
    model: Model
    process: Process
    idle_since: float | None = field(default_factory=time.monotonic)
    stopping: bool = False


class WorkerAgent:
    """`worker_id` stays the same over restarts: gangs' ids begin with it, so what a dead agent left is known."""

    def __init__(
        self, worker_id: str, models: Sequence[Model], queue: Queue, start: StartGangProcess, drain_s: float
    ) -> None:
        self._id = worker_id
        self._models = models
        self._queue = queue
        self._start = start
        self._drain_s = drain_s
        self._gangs: dict[GangId, _Gang] = {}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Drain all gangs and leave."""
        self._stopping.set()

    async def run(self) -> None:
        cleaned = False
        while not self._stopping.is_set():
            try:
                if not cleaned:
                    await self._clean_up_after_predecessor()
                    cleaned = True
                for model in self._models:
                    await self._tend(model)
            except Unavailable as err:
                log.warning("queue did not answer", error=str(err))
            try:
                await asyncio.wait_for(self._stopping.wait(), _TICK_S)
            except TimeoutError:
                continue
        await self._drain_all()

    async def _clean_up_after_predecessor(self) -> None:
        """Gangs die with their agent, so whatever one of ours still holds was left by an agent that was killed."""
        for model in self._models:
            for gang, held in (await self._queue.holdings(model.name)).items():
                if gang.startswith(f"{self._id}-") and gang not in self._gangs:
                    if held:
                        await self._queue.release(model.name, gang, "the worker died")
                        log.warning("tasks of a dead gang put back", gang=gang, tasks=held)
                    await self._queue.leave(model.name, gang)

    async def _tend(self, model: Model) -> None:
        await self._bury(model)
        held = await self._queue.holdings(model.name)
        mine = {gang_id: gang for gang_id, gang in self._gangs.items() if gang.model.name == model.name}
        now = time.monotonic()
        for gang_id, gang in mine.items():
            busy = held.get(gang_id, 0) > 0
            gang.idle_since = None if busy else gang.idle_since or now
        figures = await self._queue.figures(model.name)
        views = [GangView(gang_id, g.idle_since, g.stopping) for gang_id, g in mine.items()]
        for step in plan_gangs(model, figures.length, views, now):
            match step:
                case StartGang():
                    gang_id = GangId(f"{self._id}-{model.name}-{secrets.token_hex(3)}")
                    self._gangs[gang_id] = _Gang(model, await self._start(model, gang_id))
                    log.info("gang started", gang=gang_id, model=model.name, waiting=figures.length)
                case StopGang(gang_id, reason):
                    self._gangs[gang_id].stopping = True
                    self._gangs[gang_id].process.terminate()
                    log.info("gang asked to leave", gang=gang_id, reason=reason)

    async def _bury(self, model: Model) -> None:
        """Forgets the gangs of this model that have ended, and puts back what a killed one held."""
        for gang_id, gang in list(self._gangs.items()):
            code = gang.process.returncode
            if gang.model.name != model.name or code is None:
                continue
            gang.process.kill()  # whatever is left of its process group
            if code != 0:
                log.warning("gang died", gang=gang_id, code=code, said=gang.process.last_words())
            await self._queue.release(model.name, gang_id, f"the gang's supervisor ended with code {code}")
            await self._queue.leave(model.name, gang_id)
            del self._gangs[gang_id]
            log.info("gang gone", gang=gang_id)

    async def _drain_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for gang_id, gang in self._gangs.items():
                group.create_task(gang.process.stop(self._drain_s + 5), name=f"drain {gang_id}")
