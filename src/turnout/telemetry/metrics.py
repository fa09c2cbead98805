"""Prometheus: what this gateway did, and what it can see of tasks, queues and gangs.

Every gateway sees all events and the same fleet, so the figures of tasks, videos, workers and models are the same on each:
take one, do not add them up. [docs/metrics.md] has them all.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.errors import Unavailable
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
        self._seen = ""
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def scrape(self) -> bytes:
        """One at a time, so that nobody can load Redis by asking. While Redis is away, what was read last is told."""
        async with self._asking:
            try:
                await self._service.look()
                self._seen = await self._shared.look()
                redis_up = True
            except Unavailable:
                redis_up = False
            parts = (self._own.text(), self._service.text(redis_up), self._seen, *(t() for t in self._texts))
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

    async def look(self) -> str:
        """Raises Unavailable."""
        totals = await self._backlog.totals()
        models = [model.name for model in await self._catalog.videos()]
        self._videos.know(models)
        queues = await self._backlog.all_figures(models)
        seen = await self._gang_list.look()
        view = FleetView(
            await self._fleet_status.figures(),
            await self._fleet_status.statuses(),
            seen.heartbeats,
            {worker: enrolment.name for worker, enrolment in seen.enrolments.items()},
            self._prices,
        )
        open_tasks = [(state, n) for state, n in totals.items() if state not in TERMINAL]
        ended = [(state, n) for state, n in totals.items() if state in TERMINAL]
        fleet: list[str] = []
        for text in fleet_texts(view):
            fleet.append(text)
            await asyncio.sleep(0)  # a large fleet takes a tenth of a second: requests are served in between
        return "".join(
            (
                table.TASKS.by_label(open_tasks),
                table.TASKS_ENDED.by_label(ended),
                table.DEAD_RECORDS.one(await self._dead_records.count()),
                *_queue_texts(queues),
                *_gang_texts(models, seen.gangs),
                *fleet,
                self._videos.text(),
            )
        )


def _queue_texts(queues: dict[str, QueueFigures]) -> list[str]:
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
