"""Prometheus figures of the fleet, as the registry tells them at a scrape: the same at each gateway, so take one."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from turnout.fleet.fleet_rules import Rules
from turnout.fleet.machine_rules import Gpu, WorkerId
from turnout.fleet.publication import FleetFigures
from turnout.fleet.status_rules import ModelStatus
from turnout.fleet.worker_rules import Standing, StoredHeartbeat
from turnout.telemetry.exposition import Labels, counter, gauge, histogram
from turnout.telemetry.histogram import START_SECONDS, Histogram
from turnout.tenants.gpu_cost_rules import price_of
from turnout.tenants.gpu_time_rules import cell_of

_WORKER, _GPU, _MODEL = ("worker",), ("worker", "gpu"), ("model",)
_RULES = Rules()


@dataclass(frozen=True, slots=True)
class FleetView:
    """All that was read for one scrape; `names` are the workers' own. `prices` are by kind of GPU, as they were set."""

    figures: FleetFigures = field(default_factory=FleetFigures)
    statuses: Mapping[str, ModelStatus] = field(default_factory=dict[str, ModelStatus])
    heartbeats: Mapping[WorkerId, StoredHeartbeat] = field(default_factory=dict[WorkerId, StoredHeartbeat])
    names: Mapping[WorkerId, str] = field(default_factory=dict[WorkerId, str])
    prices: Mapping[str, float] = field(default_factory=dict[str, float])


def fleet_texts(view: FleetView) -> Iterator[str]:
    """The text of each metric. One of a large fleet's GPUs takes milliseconds."""
    yield from _of_models(view)
    yield from _of_workers(view)
    yield from _of_gpus(view)


def _of_models(view: FleetView) -> Iterator[str]:
    counts: defaultdict[str, dict[Labels, int]] = defaultdict(dict)
    starts: dict[tuple[str, str], Histogram] = {}
    # A counter that appears with its first 1 would show Prometheus no increase.
    counts["fail"] = {(model,): 0 for model in view.statuses}
    counts["webhook"] = {(outcome,): 0 for outcome in ("delivered", "again", "given_up")}
    for name, count in view.figures.decision_counts.items():
        what, _, rest = name.partition(":")
        detail, _, model = rest.partition(":")
        if what.startswith("gpu_"):
            counts["gpu"][(model, detail, what[4:])] = count
        elif what.startswith("ready_"):
            _add_start(starts.setdefault((model, what[6:]), Histogram(START_SECONDS)), detail, count)
        elif what in ("start", "wake"):
            counts["starts"][(model, what, detail)] = count
        else:
            counts[what][(detail if what == "webhook" else model,)] = count
    yield gauge(
        "turnout_model_state",
        "1 for the state that a model is in, and its cause where the state alone does not tell.",
        ("model", "state", "cause"),
        (((model, s.state, s.cause or ""), 1) for model, s in view.statuses.items()),
    )
    yield gauge(
        "turnout_replicas",
        "Replicas by state.",
        ("model", "state"),
        ((_swapped(name), n) for name, n in view.figures.replica_counts.items()),
    )
    yield counter(
        "turnout_cold_starts_total",
        "Replicas started, or woken from sleep, and why.",
        ("model", "kind", "cause"),
        counts["starts"].items(),
    )
    yield histogram(
        "turnout_replica_start_seconds",
        "From the order to start or wake a replica until it was ready.",
        ("model", "kind"),
        starts.items(),
    )
    yield counter(
        "turnout_gpu_seconds_total",
        "GPU time by what the GPUs did for a model: busy, loading, idle, asleep; free is for none.",
        ("model", "kind", "state"),
        ((labels, ms / 1000) for labels, ms in counts["gpu"].items()),
    )
    yield gauge(
        "turnout_gpu_hour_price",
        "What an hour of such a GPU costs (gpu_prices).",
        ("kind",),
        (((kind,), price_of(view.prices, kind)) for kind in sorted({kind for _, kind, _ in counts["gpu"]})),
    )
    yield counter(
        "turnout_evictions_total",
        "Replicas that had to make room for another model.",
        _MODEL,
        counts["evict"].items(),
    )
    yield counter(
        "turnout_model_failures_total",
        "Times that a model's replica failed to start, or died.",
        _MODEL,
        counts["fail"].items(),
    )
    yield counter(
        "turnout_webhook_tries_total",
        "Webhooks that were sent: delivered, to be sent again, given up.",
        ("outcome",),
        counts["webhook"].items(),
    )
    yield gauge("turnout_webhooks_waiting", "Webhooks to be delivered.", (), [((), view.figures.webhooks)])


def _swapped(name: str) -> Labels:
    state, _, model = name.partition(":")
    return model, state


def _add_start(one: Histogram, detail: str, count: int) -> None:
    if detail == "ms":
        one.total = count / 1000
    elif detail.isdigit() and int(detail) < len(one.counts):
        one.counts[int(detail)] = count


def _of_workers(view: FleetView) -> Iterator[str]:
    machines = {worker: beat.machine for worker, beat in view.heartbeats.items()}
    standings = Counter(_RULES.standing(age_s) for age_s in view.figures.heard_s.values())
    yield gauge(
        "turnout_workers",
        "Workers by how they are heard.",
        ("standing",),
        (((standing,), standings[standing]) for standing in Standing),
    )
    yield gauge(
        "turnout_worker_info",
        "The name that a worker gave itself.",
        ("worker", "name"),
        (((worker, name), 1) for worker, name in view.names.items()),
    )
    yield gauge(
        "turnout_worker_heartbeat_age_seconds",
        "Since a worker was last heard.",
        _WORKER,
        (((worker,), age_s) for worker, age_s in view.figures.heard_s.items()),
    )
    for name, about, figure in (
        ("memory_bytes", "Memory that replicas may take.", "memory_bytes"),
        ("memory_free_bytes", "Memory that is free.", "free_memory_bytes"),
        ("disk_bytes", "The disk with the worker's state directory.", "disk_bytes"),
        ("disk_free_bytes", "What is free on that disk.", "free_disk_bytes"),
    ):
        rows = (((worker,), getattr(machine, figure)) for worker, machine in machines.items())
        yield gauge(f"turnout_worker_{name}", about, _WORKER, rows)
    reports = [(worker, r) for worker, beat in view.heartbeats.items() for r in beat.reports if r.model]
    yield gauge(
        "turnout_replica_busy",
        "Requests or tasks that a replica works on.",
        ("worker", "model", "replica"),
        (((worker, r.model, r.id), r.busy) for worker, r in reports),
    )
    yield gauge(
        "turnout_replica_gpu",
        "1 for each GPU that a replica has: join with it to see a GPU's figures by replica.",
        ("worker", "gpu", "model", "replica"),
        (((worker, str(gpu), r.model, r.id), 1) for worker, r in reports for gpu in r.gpus),
    )


def _gpu_seconds(view: FleetView) -> Iterator[tuple[Labels, float]]:
    for worker, beat in view.heartbeats.items():
        counted: Counter[Labels] = Counter()
        for name, ms in beat.gpu_time.counts.items() if beat.gpu_time else ():
            if (cell := cell_of(name)) is not None:
                counted[(worker, cell.gpu, cell.state)] += ms
        yield from ((labels, ms / 1000) for labels, ms in counted.items())


def _of_gpus(view: FleetView) -> Iterator[str]:
    gpus = [(w, str(gpu.index), gpu) for w, beat in view.heartbeats.items() for gpu in beat.machine.gpus]
    yield gauge(
        "turnout_gpu_info",
        "What kind of GPU it is.",
        ("worker", "gpu", "name"),
        (((worker, index, gpu.name), 1) for worker, index, gpu in gpus),
    )
    yield counter(
        "turnout_worker_gpu_seconds_total",
        "GPU time of a worker by what its GPUs did, since it started.",
        ("worker", "kind", "state"),
        _gpu_seconds(view),
    )
    for name, about, figure in (
        ("memory_bytes", "Memory of a GPU.", "total_bytes"),
        ("memory_free_bytes", "Memory of a GPU that nobody holds.", "free_bytes"),
        ("utilization_ratio", "Part of the time in which a GPU computed.", "utilization"),
        ("power_watts", "What a GPU takes.", "power_watts"),
        ("temperature_celsius", "How warm a GPU is.", "temperature_celsius"),
    ):
        yield gauge(f"turnout_gpu_{name}", about, _GPU, _told(gpus, figure))
    yield counter(
        "turnout_gpu_ecc_errors_total",
        "Uncorrected memory errors since the driver was loaded.",
        _GPU,
        _told(gpus, "ecc_errors"),
    )
    yield counter(
        "turnout_gpu_xid_errors_total",
        "Errors that the driver reported since the worker started.",
        _GPU,
        _told(gpus, "xid_errors"),
    )


def _told(gpus: Iterable[tuple[WorkerId, str, Gpu]], figure: str) -> Iterator[tuple[Labels, float]]:
    for worker, index, gpu in gpus:
        value: float | None = getattr(gpu, figure)
        if value is not None:
            yield (worker, index), value
