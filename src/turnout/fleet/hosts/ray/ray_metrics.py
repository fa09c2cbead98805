"""The figures that every gateway tells of tasks, queues, videos, gangs and models, through Ray's own metrics: whoever scrapes
Ray's nodes sees them as `ray_turnout_…` without a gateway. Those of workers are left out: none of ours runs on Ray."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from ray.util.metrics import Gauge

from turnout.errors import NotFound, Unavailable
from turnout.fleet.catalog import Catalog
from turnout.fleet.fleet_rules import Rules
from turnout.fleet.gang_list import GangList
from turnout.stores import Stores
from turnout.tasks.task_rules import Finished, Interrupted
from turnout.telemetry.log import get_log
from turnout.telemetry.metrics import SharedFigures
from turnout.telemetry.video_metrics import VideoMetrics

_EVERY_S = 5.0
_PER_WORKER = ('worker="', "turnout_workers")


class RayMetrics:
    """Counters and histograms are gauges to Ray, which would count them itself: their values and names are Prometheus's,
    so that `rate` and `histogram_quantile` do what they do elsewhere."""

    def __init__(self, stores: Stores, prices: Mapping[str, float]) -> None:
        self._stores = stores
        self._videos = VideoMetrics()
        self._shared = SharedFigures(
            self._videos,
            stores.backlog,
            stores.dead_records,
            GangList(stores.fleet.gangs, stores.fleet.workers, stores.fleet.orders, Rules(), time.monotonic),
            stores.fleet.status,
            Catalog(stores.fleet.models, [], time.monotonic),
            prices,
        )
        self._gauges: dict[str, Any] = {}
        self._told: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    async def tell(self) -> None:
        """For ever."""
        while True:
            try:
                self.publish(await self._shared.look())
            except Unavailable as err:
                get_log().warning("metrics not passed on to ray", error=str(err))
            await asyncio.sleep(_EVERY_S)

    def publish(self, text: str) -> None:
        kept = "".join(
            line for line in text.splitlines(keepends=True) if not any(word in line for word in _PER_WORKER)
        )
        told = set[tuple[str, tuple[tuple[str, str], ...]]]()
        for family in text_string_to_metric_families(kept):
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                self._gauge(sample.name, family.documentation, labels).set(sample.value, dict(labels))
                told.add((sample.name, labels))
        for name, labels in self._told - told:
            self._gauges[name].set(0.0, dict(labels))  # Ray would tell the last value for ever
        self._told = told

    async def observe(self) -> None:
        """Counts the times of videos as their events come, for ever."""
        async for recorded in self._stores.events.tail():
            task = None
            if isinstance(recorded.event, Finished | Interrupted):
                try:
                    task = await self._stores.tasks.get(recorded.task)
                except NotFound:
                    continue
            self._videos.observe(recorded, task)

    def _gauge(self, name: str, about: str, labels: tuple[tuple[str, str], ...]) -> Any:
        if name not in self._gauges:
            self._gauges[name] = Gauge(name, about, tuple(label for label, _ in labels))
        return self._gauges[name]
