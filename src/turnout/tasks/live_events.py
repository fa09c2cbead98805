"""Live events: one tail of all tasks' events for this process, fanned out to whoever watches.

Each event is written out once, whatever the number of watchers, and where a connection can take it, the fan-out writes it
there itself: to wake a task for each of a thousand watchers costs three times as much as to write to them. A watcher that
falls behind is cut off and reconnects from the last event it has; nothing here grows with a slow client. Replay and live
events meet in `follow`: no gap, no repetition, in order.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from turnout.errors import NotFound, Unavailable
from turnout.tasks.event_json import EventJson, event_json, order_of, watching_note
from turnout.tasks.task_events import TaskEvents
from turnout.tasks.task_log import TaskLog
from turnout.tasks.task_rules import Finished, Interrupted, Recorded, Submitted, Task, TaskId, TenantId
from turnout.tasks.wait_reasons import needs_model
from turnout.tasks.waiting_notes import WaitingNotes
from turnout.telemetry.log import get_log
from turnout.tenants.tenant_turns import TenantTurns, TurnLimits
from turnout.tenants.turn_rules import Turn

HEARTBEAT_S = 15.0
_MAX_BEHIND = 512
_MAX_WATCHERS = 20_000
_MAX_READS = 16  # stories read at once: a thousand clients that reconnect together share a few connections
_RETRY_S = 0.5
_LOOKING_BACK = TurnLimits(
    places=4,
    of_one=1,
    waiting=2000,
    wait_s=30.0,
    busy="Too many ask for what has happened.",
    code="unavailable",
)  # of 100,000 events of all tenants
_NEWEST = 100  # of a tenant's tasks, of which a watcher is told why they wait
_AT_ONCE = 500  # messages that are written before others may run

WriteNow: TypeAlias = Callable[[EventJson], bool]
"""Writes an event to a watcher's connection at once; False if it cannot take it now."""
EventObserver: TypeAlias = Callable[[Recorded, Task | None], None]


class CutOff(Exception):
    """The watcher fell behind, or the gateway is stopping: the client reconnects from its last event."""


class Watcher:
    """What one client is still to be sent."""

    def __init__(self) -> None:
        self._pending: deque[EventJson] = deque()
        self._passes: WriteNow | None = None
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._took_at = 0.0
        self._cut_off = False

    def offer(self, event: EventJson) -> None:
        if self._passes is not None and not self._wake.is_set() and self._passes(event):
            self._took_at = self._loop.time()
        elif len(self._pending) >= _MAX_BEHIND:
            self.cut_off()
        elif not self._cut_off:
            self._pending.append(event)
            self._wake.set()

    def cut_off(self) -> None:
        self._cut_off = True
        self._pending.clear()
        self._wake.set()

    async def take(self, passes: WriteNow | None = None) -> list[EventJson]:
        """What has come, waiting for the first; nothing when it is time for a heartbeat. While it waits, events go to `passes`
        first, and those that it takes are not among what is returned. Raises CutOff."""
        if not self._wake.is_set():
            if self._timer is None:
                self._start_timer(HEARTBEAT_S)
            self._passes = passes
            try:
                await self._wake.wait()
            finally:
                self._passes = None
        if self._cut_off:
            raise CutOff
        self._wake.clear()
        self._took_at = self._loop.time()
        taken = list(self._pending)
        self._pending.clear()
        return taken

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _start_timer(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._timer_fired)

    def _timer_fired(self) -> None:
        """One timer a watcher, not one a message: a fifth of the cost of a fan-out went into timers."""
        left = self._took_at + HEARTBEAT_S - self._loop.time()
        if left > 0:
            self._start_timer(left)
        else:
            self._timer = None
            self._wake.set()


class LiveEvents:
    """`observers` get every event, with the task as it is now where the event may have ended it. `notes` come between events:
    they are sent once, to whoever watches, and are in no story. `url_of` gives the URL of a finished video."""

    def __init__(
        self,
        tasks: TaskLog,
        events: TaskEvents,
        notes: WaitingNotes,
        url_of: Callable[[TaskId, float], str],
        observers: Sequence[EventObserver] = (),
    ) -> None:
        self._tasks = tasks
        self._events = events
        self._notes = notes
        self._url_of = url_of
        self._observers = (notes.observe, *observers)
        self._cursor: str | None = None
        self._by_task: defaultdict[TaskId, set[Watcher]] = defaultdict(set)
        self._by_tenant: defaultdict[TenantId, set[Watcher]] = defaultdict(set)
        self._reads = asyncio.Semaphore(_MAX_READS)
        self._looking_back = TenantTurns(_LOOKING_BACK)
        self._count = 0
        self._stopping = False

    @property
    def cursor(self) -> str | None:
        """Of the last event that was fanned out, or where the tail began; None before that."""
        return self._cursor

    @property
    def count(self) -> int:
        """How many watch."""
        return self._count

    async def run(self) -> None:
        """Tails for ever; after a failure it goes on from the last event it fanned out."""
        told = 0
        while True:
            try:
                if self._cursor is None:
                    self._cursor = await self._events.newest() or "0"
                async for recorded in self._events.tail(self._cursor):
                    told += await self._publish(recorded)
                    self._cursor = recorded.cursor
                    if told >= _AT_ONCE:
                        told = 0
                        await asyncio.sleep(0)
            except Unavailable as err:
                get_log().warning("task events not read, trying again", reason=err.message)
            except Exception:  # noqa: BLE001 - an unreadable event: pass over it, let clients ask for the story
                get_log().exception("task events could not be passed on, clients must reconnect")
                self._cursor = None
                self._cut_off_all()
            await asyncio.sleep(_RETRY_S)

    def stop(self) -> None:
        """Ends every open stream, so that a server can stop without waiting for its clients."""
        self._stopping = True
        self._cut_off_all()

    def _cut_off_all(self) -> None:
        for watchers in (*self._by_task.values(), *self._by_tenant.values()):
            for watcher in watchers:
                watcher.cut_off()

    def watchers(self, task: TaskId, tenant: TenantId) -> list[Watcher]:
        return [*self._by_task.get(task, ()), *self._by_tenant.get(tenant, ())]

    async def follow(
        self, task: Task, after: str, write_now: WriteNow | None = None
    ) -> AsyncGenerator[Sequence[EventJson]]:
        """The task's events past `after` until it ends; an empty sequence when it is time for a heartbeat. What `write_now`
        took while the next sequence was waited for is in none."""
        with self._watch(self._by_task, task.id) as watcher:
            self._notes.add(task.id, task.tenant)
            last, order = after, order_of(after)

            def pass_on(event: EventJson) -> bool:
                """Writes what comes next in the middle of a story. Notes and the end are for the loop below."""
                nonlocal last, order, waits
                if event.ended or not event.id:
                    return False
                if event.order > order:
                    if write_now is None or not write_now(event):
                        return False
                    last, order, waits = event.id, event.order, event.waits
                return True

            # Until the tail has brought something, nobody can know whether it was there yet: ask the story,
            # which has all that was written up to now.
            tail_seen = self._cursor is not None
            events = await self.story(task.id, last)
            if not events and (await self._tasks.get(task.id)).ended:
                return
            waits, notes = True, list[EventJson]()
            while True:
                if events:
                    last, order, waits = events[-1].id, events[-1].order, events[-1].waits
                # A story may be ahead of the tail: a note that it has overtaken is dropped.
                if events or (waits and notes):
                    yield [*events, *notes] if waits else events
                    if events and events[-1].ended:
                        return
                came, notes = _parted(await watcher.take(pass_on if tail_seen else None))
                if notes and not came:
                    events = []
                    continue
                if came and tail_seen:
                    events = [event for event in came if event.order > order]
                    if not events and came[-1].ended:
                        return  # the client's Last-Event-ID lies past the end
                    continue
                tail_seen = tail_seen or bool(came)
                events = await self.story(task.id, last)
                if not events and not notes:
                    yield ()

    async def follow_tenant(
        self, tenant: TenantId, whose: Turn, after: str | None, write_now: WriteNow | None = None
    ) -> AsyncGenerator[Sequence[EventJson]]:
        """All of a tenant's events past the cursor `after` (None: from now on), for ever; first a note that it has begun.
        `write_now` as for `follow`, `whose` turn it is to look back."""
        with self._watch(self._by_tenant, tenant) as watcher:
            yield (watching_note(after or self._cursor),)
            for task in (await self._tasks.page(tenant, after=None, limit=_NEWEST, order="desc"))[0]:
                if needs_model(task):
                    self._notes.add(task.id, tenant)
            last = order_of(after or "")
            if after is not None:
                async for event in self._since(tenant, whose, after):
                    last = event.cursor_order
                    yield (event,)

            def pass_on(event: EventJson) -> bool:
                nonlocal last
                if not event.cursor or event.cursor_order > last:
                    if write_now is None or not write_now(event):
                        return False
                    last = event.cursor_order or last
                return True

            while True:
                came = await watcher.take(pass_on)
                events = [n for n in came if not n.cursor or n.cursor_order > last]
                last = next((n.cursor_order for n in reversed(events) if n.cursor), last)
                yield events

    async def story(self, task_id: TaskId, after: str) -> list[EventJson]:
        """What is recorded of a task past `after`."""
        async with self._reads:
            recorded = await self._events.history(task_id, after)
            now = await self._task_now(recorded[-1]) if recorded else None
            if now is None and recorded:
                now = await self._task_now(recorded[0])
        return [event_json(r, now, self._url_of) for r in recorded]

    async def _since(self, tenant: TenantId, whose: Turn, after: str) -> AsyncGenerator[EventJson]:
        """What was recorded between `after` and what the live tail has brought. The turn is over with each page: a client that reads
        slowly holds up nobody."""
        upto, at = self._cursor, after
        if upto is None:
            raise CutOff
        while at is not None:
            async with self._looking_back.turn(whose):
                page, at = await self._events.page(tenant, at, upto)
            for recorded in page:
                yield event_json(recorded, await self._task_now(recorded), self._url_of)

    @contextmanager
    def _watch(self, index: defaultdict[Any, set[Watcher]], name: str) -> Generator[Watcher]:
        if self._stopping or self._count >= _MAX_WATCHERS:
            raise Unavailable("This gateway takes no more watchers now.", retry_after_s=1.0)
        watcher = Watcher()
        self._count += 1
        index[name].add(watcher)
        try:
            yield watcher
        finally:
            watcher.close()
            self._count -= 1
            index[name].discard(watcher)
            if not index[name]:
                del index[name]

    async def _publish(self, recorded: Recorded) -> int:
        """How many were told of it."""
        watched = recorded.task in self._by_task or recorded.tenant in self._by_tenant
        unread = isinstance(recorded.event, Submitted) and not watched
        now = None if unread else await self._task_now(recorded)
        # Asked only now: whoever began to watch meanwhile looks back to the event before this one.
        of_task = self._by_task.get(recorded.task, ())
        of_tenant = self._by_tenant.get(recorded.tenant, ())
        for observe in self._observers:
            observe(recorded, now)
        if of_task or of_tenant:
            event = event_json(recorded, now, self._url_of)
            for watcher in (*of_task, *of_tenant):
                watcher.offer(event)
        return len(of_task) + len(of_tenant)

    async def _task_now(self, recorded: Recorded) -> Task | None:
        """The task as it is, when the event alone does not say enough; None when it is gone."""
        if not isinstance(recorded.event, Interrupted | Finished | Submitted):
            return None
        try:
            return await self._tasks.get(recorded.task)
        except NotFound:
            return None


def _parted(came: Sequence[EventJson]) -> tuple[list[EventJson], list[EventJson]]:
    """Events, and notes."""
    return [one for one in came if one.id], [one for one in came if not one.id]
