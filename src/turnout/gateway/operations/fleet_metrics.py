"""Prometheus figures of the fleet, as the registry tells them at a scrape: the same at each gateway, so take one."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from turnout.ports.fleet_status import FleetFigures


class FleetMetrics(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self.figures = FleetFigures()
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        replicas = GaugeMetricFamily("turnout_replicas", "Replicas by state.", labels=("model", "state"))
        for name, count in self.figures.replica_counts.items():
            state, _, model = name.partition(":")
            replicas.add_metric((model, state), count)
        yield replicas
        wakes = CounterMetricFamily(
            "turnout_wakes", "Replicas started, or woken from sleep.", labels=("model", "kind")
        )
        evictions = CounterMetricFamily(
            "turnout_evictions", "Replicas that had to make room for another model.", labels=("model",)
        )
        for name, count in self.figures.decision_counts.items():
            deed, _, model = name.partition(":")
            if deed == "evicted":
                evictions.add_metric((model,), count)
            else:
                wakes.add_metric((model, deed), count)
        yield wakes
        yield evictions
        ages = GaugeMetricFamily(
            "turnout_worker_heartbeat_age_seconds", "Since a worker was last heard.", labels=("worker",)
        )
        for worker, age_s in self.figures.heard_s.items():
            ages.add_metric((worker,), age_s)
        yield ages
