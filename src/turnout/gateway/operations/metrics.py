"""Prometheus: what this gateway did, and what it can see of tasks, queues and gangs.

Every gateway sees all events, so the figures of tasks and gangs are the same on each: take one, do not add them up.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import perf_counter

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.background import BackgroundLoops
from turnout.domain.errors import Unavailable
from turnout.domain.tasks import Interrupted, Progressed, Stage, Task, TaskId
from turnout.gateway.catalog import Catalog
from turnout.gateway.operations.fleet_metrics import FleetMetrics
from turnout.gateway.operations.gang_list import AwakeGang, GangList
from turnout.observe import dropped_lines
from turnout.ports.dead_records import DeadRecords
from turnout.ports.events import Recorded
from turnout.ports.fleet_status import FleetStatus
from turnout.ports.queue import Backlog

_MAX_FOLLOWED = 10_000
_HTTP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
_STEP_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 2, 3, 5, 8, 13, 20, 40, 80, 160)


class Metrics:
    """`registry` holds the figures; the ports are asked at a scrape."""

    def __init__(
        self,
        backlog: Backlog,
        dead_records: DeadRecords,
        gangs: GangList,
        fleet_status: FleetStatus,
        catalog: Catalog,
        background: BackgroundLoops,
        now: Callable[[], float],
    ) -> None:
        self._backlog = backlog
        self._dead_records = dead_records
        self._gang_list = gangs
        self._fleet_status = fleet_status
        self._catalog = catalog
        self._background = background
        self._now = now
        self.registry = CollectorRegistry()
        own = self.registry
        self._tasks = Gauge(
            "turnout_tasks", "Tasks now queued or in progress; ever ended otherwise.", ["state"], registry=own
        )
        self._length = Gauge("turnout_queue_length", "Queued and running tasks.", ["model"], registry=own)
        self._running = Gauge("turnout_queue_running", "Running tasks.", ["model"], registry=own)
        self._oldest = Gauge(
            "turnout_queue_oldest_seconds", "Age of the oldest unfinished task.", ["model"], registry=own
        )
        self._gangs = Gauge("turnout_gangs", "Gangs that are awake.", ["model", "state"], registry=own)
        self._gang_nodes = Gauge(
            "turnout_gang_nodes", "Machines that a model's gangs are on.", ["model"], registry=own
        )
        self._loop_up = Gauge(
            "turnout_loop_up", "Whether a background loop of this gateway runs.", ["loop"], registry=own
        )
        self._loop_restarts = Gauge(
            "turnout_loop_restarts", "How often a background loop was started again.", ["loop"], registry=own
        )
        Gauge("turnout_log_lines_dropped", "Log lines that could not be written.", registry=own).set_function(
            dropped_lines
        )
        self._dead = Gauge(
            "turnout_dead_records", "Records that could not be read, and were set aside.", registry=own
        )
        self._redis_up = Gauge("turnout_redis_up", "Whether Redis answered this scrape.", registry=own)
        self._restarts = Counter(
            "turnout_gang_restarts",
            "Attempts that ended without a result; counted=false were drained.",
            ["counted"],
            registry=own,
        )
        self._lag = Histogram(
            "turnout_event_lag_seconds",
            "From an event to its fan-out here.",
            buckets=_HTTP_BUCKETS,
            registry=own,
        )
        self._step = Histogram(
            "turnout_step_seconds", "One denoise step.", buckets=_STEP_BUCKETS, registry=own
        )
        self._requests = Counter(
            "turnout_http_requests", "HTTP requests.", ["method", "route", "status"], registry=own
        )
        self._latency = Histogram(
            "turnout_http_seconds",
            "From a request to the start of its answer.",
            ["method", "route"],
            buckets=_HTTP_BUCKETS,
            registry=own,
        )
        self._fleet = FleetMetrics(own)
        self._steps, self._steps_s = 0, 0.0
        self._last_step: OrderedDict[TaskId, Progressed] = OrderedDict()

    def observe(self, recorded: Recorded, task: Task | None) -> None:
        """Counts an event that is being fanned out."""
        event = recorded.event
        self._lag.observe(max(0.0, self._now() - event.at))
        match event:
            case Progressed(stage=Stage.DENOISING):
                self._stepped(recorded.task, event)
            case Interrupted(counts=counts):
                self._restarts.labels(str(counts).lower()).inc()
            case _:
                pass

    def step_totals(self) -> tuple[int, float]:
        """How many steps were seen ever, and how long they took together."""
        return self._steps, self._steps_s

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._latency.labels(method, route).observe(seconds)

    async def scrape(self) -> bytes:
        for gauge in (self._loop_up, self._loop_restarts):
            gauge.clear()
        for name, state in self._background.states().items():
            self._loop_up.labels(name).set(state == "ok")
        for name, restarts in self._background.restarts().items():
            self._loop_restarts.labels(name).set(restarts)
        try:
            for state, count in (await self._backlog.totals()).items():
                self._tasks.labels(state).set(count)
            self._dead.set(await self._dead_records.count())
            videos = [model.name for model in await self._catalog.videos()]
            figures_of = {name: await self._backlog.figures(name) for name in videos}
            for gauge in (self._length, self._running, self._oldest):
                gauge.clear()  # of models that were removed, too
            for name, figures in figures_of.items():
                self._length.labels(name).set(figures.length)
                self._running.labels(name).set(figures.running)
                self._oldest.labels(name).set(figures.oldest_s)
            self._saw_gangs(videos, await self._gang_list.awake())
            self._fleet.figures = await self._fleet_status.figures()
            self._redis_up.set(1)
        except Unavailable:
            self._redis_up.set(0)  # and the rest keeps its last values
        return generate_latest(self.registry)

    def _saw_gangs(self, models: Sequence[str], gangs: Sequence[AwakeGang]) -> None:
        self._gangs.clear()
        self._gang_nodes.clear()
        for model in models:
            mine = [gang for gang in gangs if gang.model == model]
            formed = sum(gang.formed for gang in mine)
            self._gangs.labels(model, "formed").set(formed)
            self._gangs.labels(model, "starting").set(len(mine) - formed)
            self._gang_nodes.labels(model).set(len(frozenset[str]().union(*(gang.nodes for gang in mine))))

    def _stepped(self, task: TaskId, event: Progressed) -> None:
        before = self._last_step.pop(task, None)
        if before is not None and before.attempt == event.attempt and before.step < event.step:
            seconds = max(0.0, event.at - before.at) / (event.step - before.step)
            self._step.observe(seconds)
            self._steps += 1
            self._steps_s += seconds
        if event.step < event.of:
            self._last_step[task] = event
            if len(self._last_step) > _MAX_FOLLOWED:
                self._last_step.popitem(last=False)


class RequestMetrics:
    """Counts requests by the template of their route, so that ids do not become labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began = perf_counter()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "unmatched")
                # An odd method must not become a label either.
                method = scope["method"] if route != "unmatched" else "other"
                self._metrics.answered(method, str(route), message["status"], perf_counter() - began)
            await send(message)

        await self._app(scope, receive, watched)
