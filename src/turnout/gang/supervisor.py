"""The owner of a gang's rank processes on one machine: starts them together, ends them together.

When one rank dies or falls silent the whole gang is killed, because the others would wait in a collective for ever.
Then the tasks it held are put back and the gang is formed anew. A gang that time and again does
not get as far as a loaded model gives up, and says why: whoever placed it can try elsewhere. The ranks of one pod are not
formed anew, because those of the other pods would not meet them: whoever started the pods starts all of them again.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from turnout.backoff import backoff_s
from turnout.errors import Unavailable
from turnout.fleet.model_rules import Model
from turnout.gang.exit_codes import LEFT, ExitCode
from turnout.gang.gang_api import GangApi
from turnout.gang.gang_settings import GangSettings
from turnout.gang.heartbeat import MOVED, READY
from turnout.processes.process import Process, Ranks
from turnout.processes.scratch import scratch_folder
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log

log = get_log()

_TICK_S = 0.2
_LEAVE_S = 15.0  # for the others to leave after the first has left
_STEADY_S = 60.0  # a formation that lasted this long clears the count of failures
_MAX_UNREADY = 3  # formations in a row that did not get as far as a loaded model


@dataclass(frozen=True, slots=True)
class GangOrders:
    """`scratch` is where ranks on this machine meet, and keep what they need for a moment; None: they have no need."""

    model: str
    gang: GangId
    ranks: int
    stall_s: float
    step_timeout_s: float
    drain_s: float
    load_timeout_s: float
    reforms: bool = True
    scratch: Path | None = None


def gang_orders(
    settings: GangSettings, model: Model, gang: GangId, ranks: int | None = None, *, reforms: bool = True
) -> GangOrders:
    """As they are configured; `ranks` are all of the model's unless it says otherwise."""
    return GangOrders(
        model.name,
        gang,
        ranks or model.gang.ranks,
        settings.stall_s,
        settings.step_timeout_s,
        settings.drain_s,
        model.scaling.load_timeout_s,
        reforms,
    )


@dataclass(slots=True)
class _Rank:
    number: int
    process: Process
    heartbeat_fd: int
    alive_at: float = field(default_factory=time.monotonic)
    moved_at: float = field(default_factory=time.monotonic)
    ready: bool = False

    def read_heartbeat(self) -> None:
        """Reads what the rank wrote since the last time; never blocks."""
        try:
            signs = os.read(self.heartbeat_fd, 4096)
        except BlockingIOError:
            return
        now = time.monotonic()
        self.alive_at = now if signs else self.alive_at
        self.moved_at = now if MOVED in signs else self.moved_at
        self.ready = self.ready or READY in signs


class GangSupervisor:
    """`api` is None in a pod whose ranks only obey: what the gang holds is the leader's to give back. `ready` is called each time that a formation has loaded its model; `trouble` is why the last one broke, until then."""

    def __init__(
        self, orders: GangOrders, ranks: Ranks, api: GangApi | None, ready: Callable[[], None] = lambda: None
    ) -> None:
        self._orders = orders
        self._ranks = ranks
        self._api = api
        self._ready = ready
        self._stopping = asyncio.Event()
        self._unready = 0  # formations since the last that loaded
        self.trouble = ""

    def stop(self) -> None:
        """Drain: rank 0 leaves at the next step and takes the others along."""
        self._stopping.set()

    async def run(self) -> int:
        """What its first rank left with, as it was told; raises Unavailable when the gang cannot be formed, and Unauthorized when
        it has no right any more."""
        failures = 0
        while True:
            began = time.monotonic()
            reason = await self._one_formation()
            if isinstance(reason, int):
                return reason
            log.warning("gang broke", gang=self._orders.gang, reason=reason)
            self.trouble = reason
            await self._put_back(reason)
            if self._stopping.is_set():
                return ExitCode.GIVEN_BACK
            if self._unready >= _MAX_UNREADY or not self._orders.reforms:
                raise Unavailable(reason)
            failures = 1 if time.monotonic() - began > _STEADY_S else failures + 1
            await self._pause(backoff_s(failures, 0.5, 30.0))

    async def _one_formation(self) -> str | int:
        """Runs the ranks until the gang ends; says why it broke, or with which code it left as it was told."""
        async with self._form() as ranks:
            log.info(
                "gang formed", gang=self._orders.gang, ranks=len(ranks), pids=[r.process.pid for r in ranks]
            )
            drained_by: float | None = None
            loaded, began = False, time.monotonic()
            self._unready += 1
            while True:
                if self._stopping.is_set() and drained_by is None:
                    drained_by = time.monotonic() + self._orders.drain_s
                    ranks[0].process.terminate()
                if drained_by is not None and time.monotonic() > drained_by:
                    return "it was not drained in time"
                problem = self._problem(ranks)
                if ranks[0].ready and not loaded:
                    loaded, self._unready, self.trouble = True, 0, ""
                    self._ready()
                if problem is not None:
                    return problem
                if not loaded and time.monotonic() - began > self._orders.load_timeout_s:
                    self._unready = _MAX_UNREADY  # another try here would take as long
                    return (
                        f"its model was not loaded within {self._orders.load_timeout_s:g} s (load_timeout_s)"
                    )
                if any(r.process.returncode is not None for r in ranks):
                    return await self._wait_for_others(ranks)
                await asyncio.sleep(_TICK_S)

    def _problem(self, ranks: list[_Rank]) -> str | None:
        now = time.monotonic()
        for rank in ranks:
            rank.read_heartbeat()
            code = rank.process.returncode
            if code is not None and code not in LEFT:
                return f"rank {rank.number} {_how_it_ended(code)}: {rank.process.last_words()}".rstrip(": ")
            if code is None and now - rank.alive_at > self._orders.stall_s:
                return f"rank {rank.number} gave no sign of life for {self._orders.stall_s:g} s"
            if code is None and now - rank.moved_at > self._orders.step_timeout_s:
                return f"rank {rank.number} did not move for {self._orders.step_timeout_s:g} s"
        return None

    async def _wait_for_others(self, ranks: list[_Rank]) -> str | int:
        """A leader that left before it was ready took nobody along."""
        try:
            async with asyncio.timeout(_LEAVE_S if ranks[0].ready else 0.0):
                for rank in ranks:
                    await rank.process.wait()
        except TimeoutError:
            pass  # the leader had nothing left to do; the rest is killed with the formation
        code = ranks[0].process.returncode
        if code is None:
            return "rank 0 stayed when another one had left"
        return code if code in LEFT else f"rank 0 {_how_it_ended(code)}"

    @asynccontextmanager
    async def _form(self) -> AsyncGenerator[list[_Rank]]:
        """All ranks of a fresh gang; on the way out none of them lives."""
        ranks: list[_Rank] = []
        with scratch_folder(scratch) if (scratch := self._orders.scratch) else nullcontext() as meeting_place:
            try:
                for number in range(self._orders.ranks):
                    process, heartbeat_fd = await self._ranks.start(number, f"{meeting_place}/rendezvous")
                    ranks.append(_Rank(number, process, heartbeat_fd))
                yield ranks
            finally:
                for rank in ranks:
                    rank.process.kill()
                for rank in ranks:
                    await rank.process.wait()
                    os.close(rank.heartbeat_fd)

    async def _put_back(self, reason: str) -> None:
        if self._api is None:
            return
        try:
            # Who is told to leave and does not manage in time has done nothing wrong: the task goes on elsewhere.
            await self._api.give_back(reason, counts=not self._stopping.is_set())
        except Unavailable as err:
            log.warning("tasks were not put back; their lease will run out", error=str(err))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return


def _how_it_ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
