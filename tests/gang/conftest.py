"""A gang of one rank whose engine is a stand-in: its steps are numbers, and its clip follows from the seed."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
from tests.conftest import Stores
from tests.gangs import open_door
from tests.pace import patient

from turnout.engines.base import CheckpointRefused, Frames
from turnout.gang.attempt import AttemptContext
from turnout.gang.cadence_rules import Cadence
from turnout.gang.exit_codes import ExitCode
from turnout.gang.group import Group
from turnout.gang.heartbeat import RankHeartbeat
from turnout.gang.leader import Leader
from turnout.gang.rank_commands import RankCommander
from turnout.gang.rank_place import RankDuties, RankPlace
from turnout.tasks.task_rules import GangId, Limits
from turnout.tasks.video_rules import VideoSpec

MODEL = "wan-tiny-t2v"
LIMITS = Limits(100, 100, 1000)


@dataclass
class NumberEngine:
    """`before_step` is called on the engine's thread with the number of steps done."""

    before_step: Callable[[int], None] = lambda step: None
    resumed_at: list[int] = field(default_factory=list[int])
    steps: int = 0  # done by this engine, in all tasks

    def begin(self, spec: VideoSpec, image: bytes | None) -> "Counting":
        return Counting(self, spec, 0)

    def resume(self, spec: VideoSpec, checkpoint: bytes) -> "Counting":
        seed, step = checkpoint.decode().split()
        if int(seed) != spec.seed:
            raise CheckpointRefused("made for another seed")
        self.resumed_at.append(int(step))
        return Counting(self, spec, int(step))


class Counting:
    def __init__(self, engine: NumberEngine, spec: VideoSpec, step: int) -> None:
        self._engine, self._spec, self.step, self.of = engine, spec, step, spec.steps

    def advance(self) -> None:
        self._engine.before_step(self.step)
        self.step += 1
        self._engine.steps += 1

    def snapshot(self) -> bytes:
        return f"{self._spec.seed} {self.step}".encode()

    def preview(self) -> bytes:
        return b"preview"

    def decode(self) -> Frames:
        return np.random.default_rng(self._spec.seed).integers(0, 256, (9, 64, 64, 3), np.uint8)


@dataclass
class HeldStep:
    """Holds the engine before one step until `go` is called, as a stopped process would be held."""

    step: int
    reached: threading.Event = field(default_factory=threading.Event)
    _go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, step: int) -> None:
        if step == self.step:
            self.reached.set()
            self._go.wait(600)  # longer than any test

    def go(self) -> None:
        self._go.set()


@asynccontextmanager
async def leading(
    stores: Stores,
    gang: str,
    engine: NumberEngine,
    *,
    lease_s: float = 60.0,
    once: bool = True,
    idle_exit_s: float | None = None,
    deadline_s: float | None = None,
    leave_after_s: float | None = None,
) -> AsyncIterator[asyncio.Task[ExitCode]]:
    """A gang at work; it leaves after one task, or at the end."""
    ranks = RankCommander(Group(RankPlace(0, 1, 0)), engine, RankHeartbeat(None))
    async with open_door(stores, lease_s=lease_s) as door:
        with ThreadPoolExecutor(1) as thread:
            cadence = Cadence(checkpoint_steps=2, checkpoint_s=1000, preview_steps=4)
            context = AttemptContext(door.api(gang), cadence, 600.0, thread)
            duties = RankDuties(
                *(MODEL, GangId(gang), None, once, idle_exit_s, deadline_s), leave_after_s=leave_after_s
            )
            leader = Leader(context, duties, lambda: ranks, lambda: True)
            job = asyncio.create_task(leader.run(), name=gang)
            try:
                yield job
                if not once:
                    leader.drain()
                await asyncio.wait_for(job, patient(60))
            finally:
                job.cancel()
