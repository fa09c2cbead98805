"""The tasks that this worker's gangs hold: counted while a gang runs, put back at once when it is gone.

Gangs take their tasks by themselves. A gang that should get no further task is closed at the gateway.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turnout.errors import Unauthorized, Unavailable
from turnout.fleet.replica_rules import Want
from turnout.gang.gang_api import GangApi
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log
from turnout.worker.lifecycle_rules import ENDED_PHASES, Holds
from turnout.worker.replica_owner import ReplicaOwner
from turnout.worker.replica_set import ReplicaSet

log = get_log()

_LOOK_S = 1.0
_LOOK_CLOSING_S = 0.25
_CLOSE_AGAIN_S = 1800.0


@dataclass(slots=True)
class _Gang:
    """`closed_at` is when it was last closed at the gateway; None while it is open."""

    replica: ReplicaOwner
    api: GangApi
    closed_at: float | None = None
    released: bool = False

    @property
    def id(self) -> GangId:
        return GangId(self.replica.id)

    @property
    def ended(self) -> bool:
        return self.replica.phase in ENDED_PHASES

    @property
    def should_close(self) -> bool:
        return self.replica.closing or self.replica.wanted is Want.GONE


class GangHoldings:
    """`open_api` gives the calls of one of this worker's gangs. `left` are those of the gangs of an earlier worker that was
    killed, and they with it. Before the worker has `joined`, its gangs' tokens may not be good: its key may be another one."""

    def __init__(
        self,
        open_api: Callable[[GangId], GangApi | None],
        left: Mapping[GangId, GangApi],
        joined: Callable[[], bool] = lambda: True,
    ) -> None:
        self._open_api = open_api
        self._joined = joined
        self._left = dict(left)
        self._gangs: dict[GangId, _Gang] = {}
        self._reached = True
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """A replica has changed: look now."""
        self._changed.set()

    async def aclose(self) -> None:
        for gang in self._gangs.values():
            await gang.api.aclose()
        for api in self._left.values():
            await api.aclose()

    async def run(self, replicas: ReplicaSet) -> None:
        while True:
            self._changed.clear()
            await self.tend(replicas)
            pressing = any(gang.should_close or gang.ended for gang in self._gangs.values())
            try:
                async with asyncio.timeout(_LOOK_CLOSING_S if pressing else _LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def tend(self, replicas: ReplicaSet) -> None:
        """One round. What no gateway answers is done in the next."""
        if not self._joined():
            return
        present = {GangId(replica.id): replica for replica in replicas.gangs()}
        for gang_id, replica in present.items():
            if gang_id not in self._gangs and (api := self._open_api(gang_id)) is not None:
                self._gangs[gang_id] = _Gang(replica, api)
        try:
            await self._put_back_what_was_left()
            for gang in self._gangs.values():
                await self._look_after(gang)
            self._reached = True
        except Unavailable as err:
            if self._reached:
                log.warning("no gateway answered for the gangs", error=str(err))
            self._reached = False
        for gang_id in [i for i, gang in self._gangs.items() if i not in present and gang.released]:
            await self._gangs.pop(gang_id).api.aclose()

    async def _look_after(self, gang: _Gang) -> None:
        try:
            if not gang.ended:
                gang.replica.apply(Holds(await self._open_or_close(gang)))
            elif not gang.released:
                detail = gang.replica.report().detail
                await self._release(
                    gang.id, gang.api, f"the gang is gone: {detail}" if detail else "the gang is gone"
                )
                gang.released = True
        except Unauthorized as err:  # this worker was evicted: nothing is its own any more
            log.warning("gang has no right any more", gang=gang.id, reason=str(err))
            gang.released = gang.ended

    async def _open_or_close(self, gang: _Gang) -> int:
        """How many tasks it holds."""
        now = time.monotonic()
        if not gang.should_close:
            if gang.closed_at is None:
                return await gang.api.held()
            held = await gang.api.held(open=True)
            gang.closed_at = None
            log.info("gang may claim tasks again", gang=gang.id)
            return held
        if gang.closed_at is not None and now - gang.closed_at <= _CLOSE_AGAIN_S:
            return await gang.api.held()
        held = await gang.api.held(open=False)
        if gang.closed_at is None:
            log.info("gang may claim no more tasks", gang=gang.id)
        gang.closed_at = now
        return held

    async def _put_back_what_was_left(self) -> None:
        while self._left:
            gang, api = next(iter(self._left.items()))
            try:
                await self._release(gang, api, "the worker died")
            except Unauthorized as err:
                log.warning("tasks of a gang before were not put back", gang=gang, reason=str(err))
            del self._left[gang]
            await api.aclose()

    async def _release(self, gang: GangId, api: GangApi, reason: str) -> None:
        await api.give_back(reason, counts=True)
        await api.leave()
        log.info("gang is gone, what it held waits again", gang=gang, reason=reason)
