"""Tells watchers why their tasks wait: notes among the events, never stored and never replayed.

It looks every second, at watched tasks only, and sends a note when the reason has changed. A task is read again before its
watchers are told, so a note never follows the event that ended the wait.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from turnout.errors import NotFound, Unavailable
from turnout.tasks.event_json import EventJson, may_wait, waiting_note
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import Recorded, Task, TaskId, TenantId
from turnout.tasks.video_json import WaitingFor
from turnout.tasks.wait_reasons import WaitReasons, needs_model
from turnout.telemetry.log import get_log

LOOK_S = 1.0
_MAX_TASKS = 10_000

log = get_log()


class Listener(Protocol):
    def offer(self, event: EventJson) -> None: ...


WatchersOf: TypeAlias = Callable[[TaskId, TenantId], Collection[Listener]]


@dataclass(slots=True)
class _Wait:
    """`task` is None until it was read; `told` are the words that each watcher was last sent."""

    tenant: TenantId
    task: Task | None = None
    told: dict[Listener, str] = field(default_factory=dict[Listener, str])


class WaitingNotes:
    def __init__(self, tasks: TaskLog, reasons: WaitReasons) -> None:
        self._tasks = tasks
        self._reasons = reasons
        self._waits: dict[TaskId, _Wait] = {}

    def add(self, task: TaskId, tenant: TenantId) -> None:
        """Somebody watches this task, which may wait."""
        if len(self._waits) < _MAX_TASKS:
            self._waits.setdefault(task, _Wait(tenant))

    def observe(self, recorded: Recorded, task: Task | None) -> None:
        """Called before the event is fanned out."""
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
        for task_id, wait in list(self._waits.items()):
            watchers = watchers_of(task_id, wait.tenant)
            if not watchers:
                self._waits.pop(task_id, None)
                continue
            wait.told = {w: words for w, words in wait.told.items() if w in watchers}
            if wait.task is not None and not _untold(wait, watchers, await self._reasons.of(wait.task)):
                continue
            wait.task = await self._waiting_task(task_id)
            if wait.task is None:
                self._waits.pop(task_id, None)
                continue
            reason = await self._reasons.of(wait.task)
            if self._waits.get(task_id) is wait:  # or an event ended the wait meanwhile
                for watcher in _untold(wait, watchers, reason):
                    wait.told[watcher] = _words(reason)
                    watcher.offer(waiting_note(task_id, reason))

    async def _waiting_task(self, task_id: TaskId) -> Task | None:
        try:
            task = await self._tasks.get(task_id)
        except NotFound:
            return None
        return task if needs_model(task) else None


def _words(reason: WaitingFor | None) -> str:
    return reason.words if reason else ""


def _untold(wait: _Wait, watchers: Collection[Listener], reason: WaitingFor | None) -> list[Listener]:
    return [w for w in watchers if wait.told.get(w, "") != _words(reason)]
