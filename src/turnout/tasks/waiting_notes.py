"""Tells watchers why their tasks wait, and behind how many: notes among the events, never stored and never replayed.

It looks every second, at watched tasks only, and sends a note when the reason or the place in the line has changed. A task is
read again before its watchers are told, so a note never follows the event that ended the wait. Places are read only after an event
that may have moved a line.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from turnout.errors import NotFound, Unavailable
from turnout.tasks.event_json import EventJson, QueueTold, may_wait, waiting_note
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import Previewed, Progressed, Recorded, State, Task, TaskId, TenantId
from turnout.tasks.video_json import WaitingFor
from turnout.tasks.wait_reasons import WaitReasons, needs_model
from turnout.telemetry.log import get_log

LOOK_S = 1.0
_MAX_TASKS = 10_000
_MAX_PLACES = 200  # read in one look: each is a call of Redis

log = get_log()


class Listener(Protocol):
    def offer(self, event: EventJson) -> None: ...


WatchersOf: TypeAlias = Callable[[TaskId, TenantId], Collection[Listener]]
EtaOf: TypeAlias = Callable[[Task, int | None], Awaitable[float | None]]
_Told: TypeAlias = tuple[str, int | None]
_NOTHING: _Told = ("", 0)


@dataclass(slots=True)
class _Wait:
    """`task` is None until it was read; `place` is where it stands in its line, as of the round `placed`; `told` are the words
    and the place that each watcher was last sent."""

    tenant: TenantId
    task: Task | None = None
    place: int | None = 0
    placed: int = -1
    told: dict[Listener, _Told] = field(default_factory=dict[Listener, _Told])


class WaitingNotes:
    def __init__(self, tasks: TaskLog, reasons: WaitReasons, eta_of: EtaOf) -> None:
        self._tasks = tasks
        self._reasons = reasons
        self._eta_of = eta_of
        self._waits: dict[TaskId, _Wait] = {}
        self._moves = 0  # how often a line may have moved

    def add(self, task: TaskId, tenant: TenantId) -> None:
        """Somebody watches this task, which may wait."""
        if len(self._waits) < _MAX_TASKS:
            self._waits.setdefault(task, _Wait(tenant))

    def observe(self, recorded: Recorded, task: Task | None) -> None:
        """Called before the event is fanned out."""
        if not isinstance(recorded.event, Progressed | Previewed):
            self._moves += 1
        if may_wait(recorded.event):
            self.add(recorded.task, recorded.tenant)
        else:
            self._waits.pop(recorded.task, None)

    async def run(self, watchers_of: WatchersOf) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look(watchers_of)
            except Unavailable as err:
                log.warning("watchers were not told why tasks wait", reason=err.message)

    async def look(self, watchers_of: WatchersOf) -> None:
        moves, places_left = self._moves, _MAX_PLACES
        for task_id, wait in list(self._waits.items()):
            watchers = watchers_of(task_id, wait.tenant)
            if not watchers:
                self._waits.pop(task_id, None)
                continue
            wait.told = {w: told for w, told in wait.told.items() if w in watchers}
            if wait.placed == moves or places_left <= 0:
                unchanged = wait.task is not None and not _untold(
                    wait, watchers, await self._reasons.of(wait.task)
                )
                if unchanged:
                    continue
            wait.task = await self._waiting_task(task_id)
            if wait.task is None:
                self._waits.pop(task_id, None)
                continue
            if wait.placed != moves and places_left > 0:
                wait.placed, places_left = moves, places_left - 1
                wait.place = await self._place(wait.task)
            await self._tell(wait, wait.task, watchers)

    async def _tell(self, wait: _Wait, task: Task, watchers: Collection[Listener]) -> None:
        reason = await self._reasons.of(task)
        if not _untold(wait, watchers, reason):
            return
        place = wait.place if task.state is State.QUEUED else None
        line = QueueTold(place, await self._eta_of(task, place))
        if self._waits.get(task.id) is wait:  # or an event ended the wait meanwhile
            for watcher in _untold(wait, watchers, reason):
                wait.told[watcher] = _words(reason), wait.place
                watcher.offer(waiting_note(task.id, reason, line))

    async def _place(self, task: Task) -> int | None:
        return 0 if task.state is not State.QUEUED else await self._tasks.position(task)

    async def _waiting_task(self, task_id: TaskId) -> Task | None:
        try:
            task = await self._tasks.get(task_id)
        except NotFound:
            return None
        return task if needs_model(task) else None


def _words(reason: WaitingFor | None) -> str:
    return reason.words if reason else ""


def _untold(wait: _Wait, watchers: Collection[Listener], reason: WaitingFor | None) -> list[Listener]:
    return [w for w in watchers if wait.told.get(w, _NOTHING) != (_words(reason), wait.place)]
