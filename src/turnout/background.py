"""The background loops of a process: each has a name, is started again when it ends, and says how it is.

A loop is meant to run for ever. Whatever ends it (an error, a return, a cancellation by a stranger) is logged, and it is
started again, after a pause that grows. One loop's end touches no other. Every loop of gateway, manager and worker runs
here; `tests/test_background.py` finds tasks that are made elsewhere.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from turnout.backoff import backoff_s
from turnout.telemetry.log import get_log

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 30.0
_STEADY_S = 5.0  # a loop that ran so long after a failure is sound again

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

log = get_log()


class _Loop:
    """`task` is there while it runs; `due_at` is when it starts otherwise. `failures` are those in a row."""

    __slots__ = ("began_at", "due_at", "error", "failures", "restarts", "task", "work")

    def __init__(self, work: Work, now: float) -> None:
        self.work = work
        self.task: asyncio.Task[None] | None = None
        self.due_at = self.began_at = now
        self.failures = self.restarts = 0
        self.error = ""


class BackgroundLoops:
    """Errors of the types `fatal` are raised by `run` instead: to start again would not help.

    `add` and `remove` may be called before and while it runs.
    """

    def __init__(
        self, loops: Mapping[str, Work] | None = None, fatal: tuple[type[Exception], ...] = ()
    ) -> None:
        self._loops: dict[str, _Loop] = {}
        self._fatal = fatal
        self._changed = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        for name, work in (loops or {}).items():
            self.add(name, work)

    def add(self, name: str, work: Work) -> None:
        if name in self._loops:
            raise ValueError(f"there is a loop {name!r} already")
        self._loops[name] = _Loop(work, time.monotonic())
        self._changed.set()

    async def remove(self, name: str) -> None:
        """Ends the loop; does nothing if there is none."""
        loop = self._loops.pop(name, None)
        if loop is not None and loop.task is not None:
            await _end(loop.task)

    @property
    def alive(self) -> bool:
        """False when nobody would start a loop again: then the process has to end."""
        return self._owner is not None and not self._owner.done()

    def states(self) -> dict[str, str]:
        """Of each loop: "ok", or how it failed a moment ago."""
        now = time.monotonic()
        return {name: _state(loop, now) for name, loop in self._loops.items()}

    def restarts(self) -> dict[str, int]:
        """How often each loop was started again."""
        return {name: loop.restarts for name, loop in self._loops.items()}

    async def run(self) -> None:
        """The only owner of the tasks; runs for ever."""
        try:
            while True:
                self._changed.clear()
                pause_s = self._start_due()
                changed = asyncio.create_task(self._changed.wait(), name="loops changed")
                running = {loop.task for loop in self._loops.values() if loop.task is not None}
                try:
                    await asyncio.wait(
                        {changed, *running}, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    changed.cancel()
                for name, loop in list(self._loops.items()):
                    if loop.task is not None and loop.task.done():
                        self._ended(name, loop, loop.task)
        finally:
            for loop in self._loops.values():
                if loop.task is not None:
                    await _end(loop.task)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Runs them for as long as the context; whatever `run` raises ends the context, too."""
        async with asyncio.TaskGroup() as group:
            self._owner = owner = group.create_task(self.run(), name="background loops")
            try:
                yield
            finally:
                await _end(owner)

    def _start_due(self) -> float | None:
        """Starts what is due, and returns how long to wait for the next; None: nothing is to be started."""
        now, next_at = time.monotonic(), None
        for name, loop in self._loops.items():
            if loop.task is not None:
                continue
            if loop.due_at <= now:
                loop.began_at = now
                loop.task = asyncio.create_task(_call(loop.work), name=name)
            else:
                next_at = loop.due_at if next_at is None else min(next_at, loop.due_at)
        return None if next_at is None else next_at - now

    def _ended(self, name: str, loop: _Loop, task: asyncio.Task[None]) -> None:
        now, loop.task = time.monotonic(), None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, self._fatal) or (
            error and not isinstance(error, Exception | asyncio.CancelledError)
        ):
            raise error
        loop.failures = 1 if now - loop.began_at > _STEADY_S else loop.failures + 1
        loop.restarts += 1
        loop.error = type(error).__name__ if error else "it ended"
        pause_s = backoff_s(loop.failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, random.random())
        loop.due_at = now + pause_s
        log.error("background loop died", loop=name, failures=loop.failures, pause_s=pause_s, exc_info=error)


def _state(loop: _Loop, now: float) -> str:
    if not loop.error or (loop.task is not None and now - loop.began_at > _STEADY_S):
        return "ok"
    return f"failed ({loop.error}), {loop.failures} in a row; it is started again"


async def _call(work: Work) -> None:
    await work()  # in the task, also when `work` raises before it has made a coroutine


async def _end(task: asyncio.Task[None]) -> None:
    # Up to Python 3.11 `wait_for`, which the Redis client uses, can lose a cancellation (gh-86296).
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)
