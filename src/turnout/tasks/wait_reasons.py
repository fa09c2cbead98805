"""Why a task waits for its model, by what the manager last published. Kept for a moment: any number of callers ask Redis once."""

import asyncio
from collections.abc import Callable, Mapping

from turnout.errors import Unavailable
from turnout.fleet.catalog import Catalog
from turnout.fleet.fleet_store import FleetStatus
from turnout.fleet.gang_reports import GangReports
from turnout.fleet.gang_rules import gang_statuses
from turnout.fleet.status_rules import ModelState, ModelStatus
from turnout.tasks.task_rules import Stage, State, Task
from turnout.tasks.video_json import WaitingFor, waiting_for

_KEEP_S = 1.0


def needs_model(task: Task) -> bool:
    """Whether it cannot go on before its model is loaded."""
    return task.state is State.QUEUED or (
        task.state is State.IN_PROGRESS and task.stage in (None, Stage.LOADING)
    )


class WaitReasons:
    def __init__(
        self, fleet_status: FleetStatus, gangs: GangReports, catalog: Catalog, now: Callable[[], float]
    ) -> None:
        self._gangs = gangs
        self._fleet_status = fleet_status
        self._catalog = catalog
        self._now = now
        self._asking = asyncio.Lock()
        self._statuses: Mapping[str, ModelStatus] = {}
        self._read_at = float("-inf")

    async def of(self, task: Task) -> WaitingFor | None:
        """None for a task that waits for nothing but its turn, and where nobody knows: of gangs that no worker runs no more
        is known than what they tell, and no request fails because of this."""
        if not needs_model(task):
            return None
        try:
            status, model = await self.status(task.model), await self._catalog.find(task.model)
        except Unavailable:
            return None
        if status is None or model is None:
            return None
        if task.state is State.IN_PROGRESS and status.runs_elsewhere and status.state is ModelState.STOPPED:
            return None  # a gang has it, and has not told of itself yet
        return waiting_for(model, status)

    async def status(self, model: str) -> ModelStatus | None:
        """How the model stands. Raises Unavailable."""
        if self._old:
            async with self._asking:
                if self._old:  # nobody else has asked meanwhile
                    self._statuses, self._read_at = await self._ask(), self._now()
        return self._statuses.get(model)

    @property
    def _old(self) -> bool:
        return self._now() - self._read_at >= _KEEP_S

    async def _ask(self) -> Mapping[str, ModelStatus]:
        return {
            **gang_statuses((await self._gangs.all()).values()),
            **await self._fleet_status.statuses(),
        }
