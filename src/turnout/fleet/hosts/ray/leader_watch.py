"""The leaders of gangs, as the manager hears of them: what they tell is written down, and what a gang holds whose leader has died is
put back at once. A leader's death counts as a failure of the attempt, whether the ranks or the lease would have said so or not."""

import asyncio
from typing import Any

from ray.exceptions import ActorDiedError, RayError

from turnout.errors import Unavailable
from turnout.fleet.gang_rules import GangReport
from turnout.stores import Stores
from turnout.tasks.gang_attempts import put_back
from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log

log = get_log()

_LOOK_EVERY_S = 1.0
_ANSWER_S = 10.0


class LeaderWatch:
    """`group` is where its own tasks run."""

    def __init__(self, stores: Stores, group: asyncio.TaskGroup) -> None:
        self._stores = stores
        self._group = group
        self._told: dict[GangId, GangReport | None] = {}  # and not written yet
        self._watches: dict[GangId, asyncio.Task[None]] = {}

    def hear(self, leader: Any, gang: GangId, report: GangReport | None) -> None:
        """`leader` is the actor that tells; None: its gang leaves in peace."""
        self._told[gang] = report
        if report is None:
            if gang in self._watches:
                self._watches.pop(gang).cancel()
        elif gang not in self._watches:
            watch = self._watch(leader, GangRight("", gang, report.model))
            self._watches[gang] = self._group.create_task(watch, name=f"leader of {gang}")

    async def write(self) -> None:
        """Raises Unavailable; what is not written then is written the next time."""
        board = self._stores.fleet.gangs
        for gang, report in list(self._told.items()):
            await (board.remove(gang) if report is None else board.put(report))
            if self._told[gang] is report:
                del self._told[gang]

    def close(self) -> None:
        for watch in self._watches.values():
            watch.cancel()

    async def _watch(self, leader: Any, right: GangRight) -> None:
        while await _lives(leader):
            await asyncio.sleep(_LOOK_EVERY_S)
        log.warning("gang's leader died", gang=right.gang, model=right.model)
        while not await self._put_back(right):
            await asyncio.sleep(_LOOK_EVERY_S)
        self._watches.pop(right.gang, None)

    async def _put_back(self, right: GangRight) -> bool:
        """Ranks may live a moment longer than their leader: they get no further task."""
        try:
            await put_back(self._stores, right, "the gang's leader died", counts=True)
            await self._stores.queue.leave(right.model, right.gang)
            await self._stores.queue.close(right.gang)
        except Unavailable as err:
            log.warning("task of a dead gang not put back, trying again", gang=right.gang, error=str(err))
            return False
        return True


async def _lives(leader: Any) -> bool:
    """One that does not answer lives, as far as Ray knows: it may be stopped, or cut off for a moment."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            await leader.__ray_ready__.remote()
    except ActorDiedError:
        return False
    except (RayError, TimeoutError):
        return True
    return True
