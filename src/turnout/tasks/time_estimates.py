"""How long tasks take here: the one estimate that forms, cards, the API and gangs are told. It learns from tasks that end."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from turnout.errors import NotFound, Unavailable
from turnout.fleet.catalog import Catalog
from turnout.fleet.model_rules import VideoPart
from turnout.fleet.status_rules import NOT_LOOKED_AT
from turnout.tasks.backlog import Backlog
from turnout.tasks.estimate_rules import Estimate, WorkAhead, estimate, wake_s
from turnout.tasks.pace_rules import ExpectedTimes, PaceBook, expected, kind_of, learned, measured
from turnout.tasks.pace_store import PaceStore
from turnout.tasks.task_events import TaskEvents
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import State, Task, TaskId
from turnout.tasks.video_rules import VideoSpec
from turnout.tasks.wait_reasons import WaitReasons
from turnout.telemetry.log import get_log

_KEEP_S = 1.0  # any number of callers ask Redis once
_LOOKED_AT = 100  # tasks of a line; the rest of it is taken to be like them
_MAX_MODELS = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PaceParts:
    """What is asked."""

    paces: PaceStore
    tasks: TaskLog
    events: TaskEvents
    backlog: Backlog
    wait_reasons: WaitReasons
    catalog: Catalog


class TimeEstimates:
    """No request fails because of it: where nobody knows, the answer is None."""

    def __init__(self, parts: PaceParts) -> None:
        self._parts = parts
        self._books = _Remembered[PaceBook](parts.paces.book, lambda _: _KEEP_S)
        self._ahead = _Remembered[WorkAhead](self._read_ahead, _keep_s)

    async def learn(self, task_id: TaskId) -> None:
        """From a task that was just completed."""
        parts = self._parts
        try:
            task = await parts.tasks.get(task_id)
            video = await self._video(task.model)
            if video is None or task.state is not State.COMPLETED:
                return
            history = await parts.events.history(task_id)
            found = measured((recorded.event for recorded in history), task.spec, video)
            if found is not None:
                kind = kind_of(task.spec, video)
                await parts.paces.change(task.model, lambda book: learned(book, kind, found))
                self._books.forget(task.model)
        except (Unavailable, NotFound) as err:
            get_log().warning("pace not learned", task=task_id, error=str(err))

    async def of_task(self, task: Task, position: int | None, now: float) -> float | None:
        """Seconds until the task ends."""
        if task.ended or task.eta_s is not None:
            return task.eta_s
        try:
            if task.state is State.IN_PROGRESS:
                times = await self.expected(task)
                passed = now - (task.claimed_at or now)
                return None if times is None else max(0.0, times.render_s(task.spec) - passed)
            found = None if position is None else await self.of_spec(task.model, task.spec, position)
        except Unavailable:
            return None
        return None if found is None else found.total_s

    async def of_spec(self, model: str, spec: VideoSpec, position: int) -> Estimate | None:
        """Of a task with so many waiting before it. Raises Unavailable."""
        times = await self._expected(model, spec)
        if times is None:
            return None
        ahead = await self._ahead.of(model)
        status = await self._parts.wait_reasons.status(model) or NOT_LOOKED_AT
        return estimate(times, spec, ahead, position, wake_s(status, await self._books.of(model)))

    async def expected(self, task: Task) -> ExpectedTimes | None:
        """What its gang is told."""
        try:
            return await self._expected(task.model, task.spec)
        except Unavailable:
            return None

    async def loading_s(self, model: str) -> float:
        """How long a gang that loads the model needs until it renders at its usual pace."""
        try:
            book = await self._books.of(model)
        except Unavailable:
            return 0.0
        return (book.load_s or 0.0) + book.warm_s

    async def _expected(self, model: str, spec: VideoSpec) -> ExpectedTimes | None:
        video = await self._video(model)
        return None if video is None else expected(await self._books.of(model), spec, video)

    async def _video(self, model: str) -> VideoPart | None:
        found = await self._parts.catalog.find(model)
        return found.video if found is not None else None

    async def _read_ahead(self, model: str) -> WorkAhead:
        running, waiting = list[float](), list[float]()
        video, book, now = await self._video(model), await self._books.of(model), time.time()
        tasks = await self._parts.backlog.oldest(model, _LOOKED_AT)
        for task in tasks:
            times = None if video is None else expected(book, task.spec, video)
            seconds = 0.0 if times is None else times.render_s(task.spec)
            if task.state is State.QUEUED:
                waiting.append(seconds)
            elif task.eta_s is not None:
                running.append(task.eta_s)
            elif task.state is State.IN_PROGRESS:
                running.append(max(0.0, seconds - (now - (task.claimed_at or now))))
        status = await self._parts.wait_reasons.status(model)
        gangs = max(1, len(running), status.replicas if status is not None else 0)
        return WorkAhead(running, waiting, gangs, whole=len(tasks) < _LOOKED_AT)


def _keep_s(ahead: WorkAhead) -> float:
    """By the square of the line's length. Of a short line one task that is missing is a large part, and it is read in no time: five
    tasks that a machine submitted within 15 ms were told half of what they took."""
    return _KEEP_S * ((len(ahead.running) + len(ahead.waiting)) / _LOOKED_AT) ** 2


class _Remembered(Generic[T]):
    """What is read of each model, for a moment: `keep_s` of what was found."""

    def __init__(self, read: Callable[[str], Awaitable[T]], keep_s: Callable[[T], float]) -> None:
        self._read = read
        self._keep_s = keep_s
        self._found: dict[str, tuple[float, T]] = {}

    async def of(self, model: str) -> T:
        read_at, found = self._found.get(model, (float("-inf"), None))
        if found is None or time.monotonic() - read_at >= self._keep_s(found):
            found = await self._read(model)
            if len(self._found) >= _MAX_MODELS:
                self._found.clear()
            self._found[model] = (time.monotonic(), found)
        return found

    def forget(self, model: str) -> None:
        self._found.pop(model, None)
