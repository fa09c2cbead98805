"""When a task will end: those before it, waking its model, and the task itself. Pure."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.fleet.status_rules import ModelState, ModelStatus
from turnout.tasks.pace_rules import ExpectedTimes, PaceBook
from turnout.tasks.video_rules import VideoSpec


@dataclass(frozen=True, slots=True)
class WorkAhead:
    """What a model has to do: the seconds that are left of each task under way, and of each that waits, oldest first; of a
    long line only the beginning (it is not `whole`). `gangs` share it."""

    running: Sequence[float] = ()
    waiting: Sequence[float] = ()
    gangs: int = 1
    whole: bool = True

    def wait_s(self, position: int, own_s: float) -> float:
        """Until a gang is free for a task with so many before it, which takes `own_s` itself. The rest of a long line is taken to
        be like its beginning; those that have come since one looked to be like the others and the task."""
        busy = sorted(self.running)[: self.gangs]
        free_at = busy + [0.0] * (self.gangs - len(busy))
        heapq.heapify(free_at)
        known = self.waiting[:position]
        for seconds in known:
            heapq.heapreplace(free_at, free_at[0] + seconds)
        like = [*known, own_s] if self.whole else known
        mean = sum(like) / len(like) if like else 0.0
        return free_at[0] + mean * (position - len(known)) / self.gangs


@dataclass(frozen=True, slots=True)
class Estimate:
    """`wait_s` for those before it, `wake_s` for its model, `render_s` for the video."""

    wait_s: float
    wake_s: float
    render_s: float
    seen: bool

    @property
    def total_s(self) -> float:
        return self.wait_s + self.wake_s + self.render_s


def wake_s(status: ModelStatus, book: PaceBook) -> float:
    """Until a model that is not ready renders at its usual pace, as far as anybody knows."""
    if status.replicas or status.state is ModelState.READY:
        return 0.0
    usual = book.load_s or 0.0 if status.wake_s is None else status.wake_s
    passed = status.for_s if status.state is ModelState.STARTING else 0.0
    return max(0.0, usual - passed) + book.warm_s


def estimate(
    times: ExpectedTimes, spec: VideoSpec, ahead: WorkAhead, position: int, waking_s: float
) -> Estimate:
    render_s = times.render_s(spec)
    return Estimate(ahead.wait_s(position, render_s), waking_s, render_s, times.seen)
