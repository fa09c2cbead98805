"""What happens to tasks, as it happens: every event since the benchmark began, with the times their writers gave."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from turnout.tasks.task_events import TaskEvents
from turnout.tasks.task_rules import Event, Progressed, Recorded, Stage, TaskId

T = TypeVar("T")

_PATIENCE_S = 180.0


class Story:
    def __init__(self) -> None:
        self._all: list[Recorded] = []
        self._more = asyncio.Event()

    async def listen(self, events: TaskEvents) -> None:
        async for recorded in events.tail("0"):
            self._all.append(recorded)
            self._more.set()

    def of(self, task: TaskId) -> list[Event]:
        return [r.event for r in self._all if r.task == task]

    def steps(self, task: TaskId, attempt: int = 1) -> list[Progressed]:
        pick = stepped(attempt)
        return [step for event in self.of(task) if (step := pick(event)) is not None]

    async def until(self, task: TaskId, pick: Callable[[Event], T | None], what: str) -> T:
        """What `pick` makes of the first of the task's events that it takes, waiting for that event."""
        at = 0
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    for recorded in self._all[at:]:
                        if recorded.task == task and (picked := pick(recorded.event)) is not None:
                            return picked
                    at = len(self._all)
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError as err:
            last = self.of(task)[-1:]
            raise RuntimeError(f"waited {_PATIENCE_S:.0f} s for {what} of {task}; last: {last}") from err


@asynccontextmanager
async def following(events: TaskEvents) -> AsyncGenerator[Story]:
    story = Story()
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(story.listen(events), name="follow all tasks")
        try:
            yield story
        finally:
            # Up to Python 3.11 `wait_for`, which the Redis client uses, can lose a cancellation (gh-86296).
            while not listening.done():
                listening.cancel()
                await asyncio.wait((listening,), timeout=0.1)


def of_kind(kind: type[T]) -> Callable[[Event], T | None]:
    return lambda event: event if isinstance(event, kind) else None


def stepped(attempt: int | None = None, past: int = 0) -> Callable[[Event], Progressed | None]:
    """Picks the word of a denoise step past `past`; an attempt's first word, before its own first step, counts too."""

    def pick(event: Event) -> Progressed | None:
        if not isinstance(event, Progressed) or event.stage is not Stage.DENOISING:
            return None
        return event if event.step > past and attempt in (None, event.attempt) else None

    return pick
