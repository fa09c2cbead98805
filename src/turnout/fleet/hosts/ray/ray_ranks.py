"""Ranks of one gang as actors in its placement group, behind the same port as ranks that are child processes.

The gang's supervisor keeps its rules: it sees processes that end, and pipes with signs of life. What a process is
here, and how its signs come over the network, is this module's business.
"""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

import ray as _ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from turnout.errors import Unavailable
from turnout.fleet.hosts.ray.bundle_rules import Resources, seating
from turnout.fleet.hosts.ray.heartbeats import Heartbeats
from turnout.fleet.hosts.ray.rank_actor import GpuName, RankAddress, RankHost, Work
from turnout.telemetry.log import get_log

ray = cast("Any", _ray)
log = get_log()

_ASK_EVERY_S = 0.5
_ALIVE = b"."
# Not "OOM": of every process that was killed Ray says that it may have been the kernel's OOM killer.
_SHORT_OF_MEMORY = re.compile("running low on memory|NODE_OUT_OF_MEMORY|memory usage threshold")
_KILLED = -int(signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class RankTerms:
    """How ranks are started: what each takes, and how long one may be without a place."""

    ranks: int
    resources: Resources
    place_s: float


class RayRank:
    """One rank's actor with the face of a process."""

    def __init__(self, name: str, actor: Any) -> None:
        self.name = name
        self.actor = actor
        self.place: RankAddress | None = None
        self.life: asyncio.Task[None] | None = None
        self._code: int | None = None
        self._words = ""
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int:
        return self.place.pid if self.place else 0

    @property
    def returncode(self) -> int | None:
        return self._code

    def end(self, code: int, words: str = "") -> None:
        if self._code is None:
            self._code, self._words = code, words
            self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return cast("int", self._code)

    def terminate(self) -> None:
        if self._code is None:
            self.actor.drain.remote()

    def kill(self) -> None:
        """It counts as dead at once: a node that is cut off never confirms. Until its process is gone the bundle
        stays taken, so that no successor runs beside it. Not on this thread: while the head is away Ray's call waits."""
        asyncio.get_running_loop().run_in_executor(None, _kill, self.actor)
        if self.life is not None:
            self.life.cancel()
        self.end(_KILLED)

    def last_words(self) -> str:
        return self._words


class RayRanks:
    """`group` is the placement group: bundle 0 is the supervisor's, too. One formation at a time; starting rank 0
    begins a new one."""

    def __init__(self, name: str, group: Any, terms: RankTerms, work: Work, gpu_name: GpuName) -> None:
        self._name = name
        self._group = group
        self._terms = terms
        self._work = work
        self._gpu_name = gpu_name
        self.formation = 0
        self._seats: list[int] = []
        self._rendezvous: asyncio.Future[str] = asyncio.Future()
        self._all_up = asyncio.Barrier(terms.ranks)
        self._heartbeats = Heartbeats()
        self._lives: set[asyncio.Task[None]] = set()
        self.ranks: list[RayRank] = []

    async def start(self, number: int, rendezvous: str) -> tuple[RayRank, int]:
        """Raises Unavailable when the cluster has no place for the gang any more: it needs another group then."""
        if number == 0:
            self.close()
            self.formation += 1
            self._seats = seating(await self._placed())
            self._heartbeats = Heartbeats()
            await self._heartbeats.listen(ray.util.get_node_ip_address())
            self._rendezvous = asyncio.get_running_loop().create_future()
            self._all_up = asyncio.Barrier(self._terms.ranks)
            self.ranks = []
        name = f"{self._name}.{number}"
        rank = RayRank(name, self._new_actor(name, self._seats[number]))
        self.ranks.append(rank)
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        os.set_blocking(theirs, False)
        rank.life = self._spawn(self._live(rank, number, theirs), name)
        return rank, ours

    def close(self) -> None:
        """Nothing of the last formation lives on."""
        self._heartbeats.close()
        for rank in self.ranks:
            rank.kill()

    def _new_actor(self, name: str, bundle: int) -> Any:
        resources = dict(self._terms.resources)
        return (
            ray.remote(RankHost)
            .options(
                name=f"{name}#{self.formation}",
                num_cpus=resources.pop("CPU", 0),
                num_gpus=resources.pop("GPU", 0),
                resources=resources,
                max_concurrency=4,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, bundle),
            )
            .remote(self._work, self._gpu_name)
        )

    async def _placed(self) -> Mapping[int, str]:
        """The node of each bundle. Ray finds new places for those whose node died, when there are any."""
        deadline = time.monotonic() + self._terms.place_s
        while True:
            table: dict[str, Any] = await asyncio.to_thread(ray.util.placement_group_table, self._group)
            if table.get("state") == "CREATED":
                return table["bundles_to_node_id"]
            if time.monotonic() > deadline or table.get("state") == "REMOVED":
                raise Unavailable(
                    f"the cluster had no place for the gang in {self._terms.place_s:g} s ({table.get('state')})"
                )
            await asyncio.sleep(_ASK_EVERY_S)

    async def _live(self, rank: RayRank, number: int, signs_to: int) -> None:
        """One rank's life as seen from here; ends the process that stands for it when the actor has ended."""
        feeding = self._spawn(_feed(signs_to), f"{rank.name} signs")
        meeting, all_up, heartbeats = self._rendezvous, self._all_up, self._heartbeats
        expected = heartbeats.expect(signs_to)
        try:
            async with asyncio.timeout(self._terms.place_s):
                rank.place = place = cast("RankAddress", await rank.actor.place.remote())
            log.info("rank started", rank=number, node=place.node, address=place.address, pid=place.pid)
            if number == 0:
                meeting.set_result(await rank.actor.listen.remote())
            # Or rank 0 would take a task that it cannot begin while a peer is given a place on a node that is gone.
            await all_up.wait()
            feeding.cancel()
            rank.end(await rank.actor.run.remote(number, self._terms.ranks, meeting.result(), expected))
        except TimeoutError:
            rank.end(1, f"its process did not start in {self._terms.place_s:g} s")
        except RayActorError as err:
            rank.end(_KILLED, death_words(err))
        except RayError as err:
            rank.end(1, death_words(err))
        finally:
            feeding.cancel()
            heartbeats.forget(expected)
            os.close(signs_to)
            rank.end(_KILLED)

    def _spawn(self, life: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(life, name=name)
        self._lives.add(task)
        task.add_done_callback(self._lives.discard)
        return task


async def _feed(signs_to: int) -> None:
    """Until the rank runs and sends them itself: waiting is no silence."""
    while True:
        with contextlib.suppress(BlockingIOError):
            os.write(signs_to, _ALIVE)
        await asyncio.sleep(_ASK_EVERY_S)


def names_lack_of_memory(text: str) -> bool:
    """Whether Ray says there that it killed a process because its node ran low on memory."""
    return _SHORT_OF_MEMORY.search(text) is not None


def _kill(actor: Any) -> None:
    with contextlib.suppress(RayError):
        ray.kill(actor)


def death_words(err: Exception) -> str:
    """What happened, without the stack: Ray's errors carry it in their first line, but for a node that ran out of memory."""
    cause = getattr(err, "cause", None)
    text = str(cause if cause is not None else err).strip()
    if names_lack_of_memory(text):
        return "its node ran low on memory"
    lines = text.splitlines()
    return lines[0][:300] if lines else type(err).__name__
