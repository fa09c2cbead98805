"""Prometheus: what this gateway did, and what it can see of tasks, queues and gangs.

Every gateway sees all events and the same fleet, so the figures of tasks, videos, workers and models are the same on each:
take one, do not add them up. [docs/metrics.md] has them all.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.fleet.catalog import Catalog
from turnout.fleet.fleet_store import FleetStatus
from turnout.fleet.gang_list import AwakeGang, GangList
from turnout.store.dead_records import DeadRecords
from turnout.tasks.backlog import Backlog, QueueFigures
from turnout.tasks.task_rules import TERMINAL, Recorded, Task
from turnout.telemetry import metric_table as table
from turnout.telemetry.exposition import Labels
from turnout.telemetry.fleet_metrics import FleetView, fleet_texts
from turnout.telemetry.histogram import Histogram
from turnout.telemetry.look import Look
from turnout.telemetry.service_metrics import ServiceMetrics
from turnout.telemetry.video_metrics import VideoMetrics


class RequestFigures:
    """What this gateway counts as it happens, in plain numbers: prometheus_client's have a lock and a look-up for each label."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.videos = VideoMetrics()
        self._lag = table.EVENT_LAG.new()
        self._requests: dict[tuple[str, str, int], int] = {}
        self._latency: dict[tuple[str, str], Histogram] = {}

    def observe(self, recorded: Recorded, task: Task | None) -> None:
        """Counts an event that is being fanned out."""
        self._lag.add(max(0.0, self._now() - recorded.event.at))
        self.videos.observe(recorded, task)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        asked = (method, route, status)
        self._requests[asked] = self._requests.get(asked, 0) + 1
        latency = self._latency.get((method, route))
        if latency is None:
            latency = self._latency[method, route] = table.HTTP_SECONDS.new()
        latency.add(seconds)

    def text(self) -> str:
        requests = (
            ((method, route, str(status)), n) for (method, route, status), n in self._requests.items()
        )
        return "".join(
            (
                table.EVENT_LAG.text([((), self._lag)]),
                table.HTTP_REQUESTS.text(requests),
                table.HTTP_SECONDS.text(self._latency.items()),
            )
        )


class Metrics:
    """`shared` and `service` are asked at a scrape. `texts` are figures that others keep."""

    def __init__(
        self,
        own: RequestFigures,
        service: ServiceMetrics,
        shared: "SharedFigures",
        texts: Sequence[Callable[[], str]] = (),
    ) -> None:
        self._own = own
        self._service = service
        self._shared = shared
        self._texts = texts
        self._asking = asyncio.Lock()
        self._redis = Look("redis", service.look_at_redis)
        self._looks = (
            self._redis,
            Look("manager", service.look_at_manager),
            Look("events", service.look_at_events),
            Look("tasks", shared.look_at_tasks),
            Look("fleet", shared.look_at_fleet),
        )
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def scrape(self) -> bytes:
        """One at a time, so that nobody can load Redis by asking; all looks side by side. While Redis is away or hangs, what was
        read last is told, with its age."""
        async with self._asking:
            async with asyncio.TaskGroup() as looks:
                for look in self._looks:
                    looks.create_task(look.take(), name=f"look at {look.name}")
            ages = [(look.name, age_s) for look in self._looks if (age_s := look.age_s) is not None]
            parts = (
                self._own.text(),
                self._service.text(self._redis.succeeded),
                await self._shared.text(),
                table.LOOK_AGE.by_label(ages),
                *(t() for t in self._texts),
            )
            return generate_latest(self._process) + "".join(parts).encode()


class SharedFigures:
    """What everyone sees alike who has these ports and sees all events: tasks, queues, videos, gangs, models, workers."""

    def __init__(
        self,
        videos: VideoMetrics,
        backlog: Backlog,
        dead_records: DeadRecords,
        gangs: GangList,
        fleet_status: FleetStatus,
        catalog: Catalog,
        prices: Mapping[str, float],
    ) -> None:
        self._videos = videos
        self._backlog = backlog
        self._dead_records = dead_records
        self._gang_list = gangs
        self._fleet_status = fleet_status
        self._catalog = catalog
        self._prices = prices
        self._tasks: _TaskFigures | None = None
        self._fleet: _FleetSeen | None = None

    async def look_at_tasks(self) -> None:
        """Raises Unavailable; then what was seen before stays."""
        totals = await self._backlog.totals()
        models = [model.name for model in await self._catalog.videos()]
        queues = await self._backlog.all_figures(models)
        self._tasks = _TaskFigures(totals, queues, await self._dead_records.count())

    async def look_at_fleet(self) -> None:
        """Raises Unavailable; then what was seen before stays."""
        models = [model.name for model in await self._catalog.videos()]
        seen = await self._gang_list.look()
        view = FleetView(
            await self._fleet_status.figures(),
            await self._fleet_status.statuses(),
            seen.heartbeats,
            {worker: enrolment.name for worker, enrolment in seen.enrolments.items()},
            self._prices,
            {
                (model.name, of): model.version.share
                for model in (await self._catalog.all()).values()
                if (of := model.version.version_of) is not None
            },
            self._gang_list.rules,
        )
        self._fleet = _FleetSeen(view, models, seen.gangs)

    async def look(self) -> str:
        """All of it. Raises Unavailable."""
        await self.look_at_tasks()
        await self.look_at_fleet()
        return await self.text()

    async def text(self) -> str:
        """What was seen last."""
        texts: list[str] = []
        if (tasks := self._tasks) is not None:
            self._videos.know(tasks.queues)
            texts += _task_texts(tasks)
        if (fleet := self._fleet) is not None:
            texts += _gang_texts(fleet.models, fleet.gangs)
            for text in fleet_texts(fleet.view):
                texts.append(text)
                await asyncio.sleep(
                    0
                )  # a large fleet takes a tenth of a second: requests are served in between
        return "".join((*texts, self._videos.text()))


@dataclass(frozen=True, slots=True)
class _TaskFigures:
    totals: Mapping[str, int]
    queues: Mapping[str, QueueFigures]
    dead_records: int


@dataclass(frozen=True, slots=True)
class _FleetSeen:
    view: FleetView
    models: Sequence[str]
    gangs: Sequence[AwakeGang]


def _task_texts(tasks: _TaskFigures) -> list[str]:
    open_tasks = [(state, n) for state, n in tasks.totals.items() if state not in TERMINAL]
    ended = [(state, n) for state, n in tasks.totals.items() if state in TERMINAL]
    return [
        table.TASKS.by_label(open_tasks),
        table.TASKS_ENDED.by_label(ended),
        table.DEAD_RECORDS.one(tasks.dead_records),
        *_queue_texts(tasks.queues),
    ]


def _queue_texts(queues: Mapping[str, QueueFigures]) -> list[str]:
    return [
        table.QUEUE_LENGTH.by_label((model, queue.length) for model, queue in queues.items()),
        table.QUEUE_RUNNING.by_label((model, queue.running) for model, queue in queues.items()),
        table.QUEUE_OLDEST.by_label((model, queue.oldest_s) for model, queue in queues.items()),
    ]


def _gang_texts(models: Sequence[str], gangs: Sequence[AwakeGang]) -> list[str]:
    formed: dict[Labels, float] = {(m, state): 0.0 for m in models for state in ("formed", "starting")}
    nodes: dict[str, set[str]] = {model: set() for model in models}
    for gang in gangs:
        if gang.model in nodes:
            formed[(gang.model, "formed" if gang.formed else "starting")] += 1
            nodes[gang.model] |= gang.nodes
    return [
        table.GANGS.text(formed.items()),
        table.GANG_NODES.by_label((model, len(there)) for model, there in nodes.items()),
    ]


class RequestMetrics:
    """Counts requests by the template of their route, so that ids do not become labels."""

    def __init__(self, app: ASGIApp, figures: RequestFigures) -> None:
        self._app = app
        self._figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began = perf_counter()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "unmatched")
                # An odd method must not become a label either.
                method = scope["method"] if route != "unmatched" else "other"
                self._figures.answered(method, str(route), message["status"], perf_counter() - began)
            await send(message)

        await self._app(scope, receive, watched)
