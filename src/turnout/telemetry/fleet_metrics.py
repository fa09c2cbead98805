"""Prometheus figures of the fleet, as the registry tells them at a scrape: the same at each gateway, so take one."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from turnout.fleet.fleet_rules import Rules
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.publication import FleetFigures
from turnout.fleet.status_rules import ModelStatus
from turnout.fleet.worker_rules import Standing, StoredHeartbeat
from turnout.telemetry import metric_table as table
from turnout.telemetry.exposition import Labels
from turnout.telemetry.histogram import Histogram
from turnout.tenants.gpu_cost_rules import price_of
from turnout.tenants.gpu_time_rules import cell_of, cells_of


@dataclass(frozen=True, slots=True)
class FleetView:
    """All that was read for one scrape; `names` are the workers' own. `prices` are by kind of GPU, as they were set,
    `shares` by version and the model that it is a version of. `rules` say when a worker is gone."""

    figures: FleetFigures = field(default_factory=FleetFigures)
    statuses: Mapping[str, ModelStatus] = field(default_factory=dict[str, ModelStatus])
    heartbeats: Mapping[WorkerId, StoredHeartbeat] = field(default_factory=dict[WorkerId, StoredHeartbeat])
    names: Mapping[WorkerId, str] = field(default_factory=dict[WorkerId, str])
    prices: Mapping[str, float] = field(default_factory=dict[str, float])
    shares: Mapping[Labels, float] = field(default_factory=dict[Labels, float])
    rules: Rules = field(default_factory=Rules)


def fleet_texts(view: FleetView) -> Iterator[str]:
    """The text of each metric. One of a large fleet's GPUs takes milliseconds."""
    yield from _of_models(view)
    yield from _of_workers(view)
    yield from _of_engines(view)
    yield from _of_gpus(view)


def _of_models(view: FleetView) -> Iterator[str]:
    counts: defaultdict[str, dict[Labels, int]] = defaultdict(dict)
    starts: dict[tuple[str, str], Histogram] = {}
    ratios: dict[tuple[str, str], Histogram] = {}
    # A counter that appears with its first 1 would show Prometheus no increase.
    counts["fail"] = {(model,): 0 for model in view.statuses}
    counts["webhook"] = {(outcome,): 0 for outcome in ("delivered", "again", "given_up")}
    for name, count in view.figures.decision_counts.items():
        what, _, rest = name.partition(":")
        detail, _, model = rest.partition(":")
        if what.startswith("gpu_"):
            if (cell := cell_of(name.removeprefix("gpu_"))) is not None:
                counts["gpu"][(cell.holder, cell.gpu, cell.state)] = count
        elif what.startswith("ready_"):
            _add_start(starts.setdefault((model, what[6:]), table.REPLICA_START_SECONDS.new()), detail, count)
        elif what.startswith("ratio_"):
            _add_start(ratios.setdefault((model, what[6:]), table.REPLICA_START_RATIO.new()), detail, count)
        elif what in ("start", "wake"):
            counts["starts"][(model, what, detail)] = count
        else:
            counts[what][(detail if what == "webhook" else model,)] = count
    figures, kinds = view.figures, {kind for _, kind, _ in counts["gpu"]}
    states = (((model, s.state, s.cause or ""), 1) for model, s in view.statuses.items())
    yield table.MODEL_STATE.text(states)
    yield table.MODEL_SHARE.text(view.shares.items())
    yield table.REPLICAS.text((_swapped(name), n) for name, n in figures.replica_counts.items())
    yield table.COLD_STARTS.text(counts["starts"].items())
    yield table.REPLICA_START_SECONDS.text(starts.items())
    yield table.REPLICA_START_RATIO.text(ratios.items())
    yield table.GPU_SECONDS.text((labels, ms / 1000) for labels, ms in counts["gpu"].items())
    yield table.GPU_HOUR_PRICE.by_label((kind, price_of(view.prices, kind)) for kind in sorted(kinds))
    yield table.EVICTIONS.text(counts["evict"].items())
    yield table.MODEL_FAILURES.text(counts["fail"].items())
    yield table.WEBHOOK_TRIES.text(counts["webhook"].items())
    yield table.WEBHOOKS_WAITING.one(figures.webhooks)


def _swapped(name: str) -> Labels:
    state, _, model = name.partition(":")
    return model, state


def _add_start(one: Histogram, detail: str, count: int) -> None:
    if detail == "ms":
        one.total = count / 1000
    elif detail.isdigit() and int(detail) < len(one.counts):
        one.counts[int(detail)] = count


def _of_workers(view: FleetView) -> Iterator[str]:
    machines = [(worker, beat.machine) for worker, beat in view.heartbeats.items()]
    standings = Counter(view.rules.standing(age_s) for age_s in view.figures.heard_s.values())
    reports = [(worker, r) for worker, beat in view.heartbeats.items() for r in beat.reports if r.model]
    gpus = (((worker, str(gpu), r.model, r.id), 1) for worker, r in reports for gpu in r.gpus)
    yield table.WORKERS.by_label((standing, standings[standing]) for standing in Standing)
    yield table.WORKER_INFO.text((names, 1) for names in view.names.items())
    yield table.WORKER_HEARTBEAT_AGE.by_label(view.figures.heard_s.items())
    yield table.WORKER_MEMORY_BYTES.by_label((worker, m.memory_bytes) for worker, m in machines)
    yield table.WORKER_MEMORY_FREE_BYTES.by_label((worker, m.free_memory_bytes) for worker, m in machines)
    loads = [(worker, load) for worker, m in machines if (load := m.load) is not None]
    yield table.WORKER_CPUS.by_label((worker, m.cpus) for worker, m in machines)
    yield table.WORKER_CPU_SECONDS.by_label((worker, load.cpu_ms / 1000) for worker, load in loads)
    yield table.WORKER_RECEIVED_BYTES.by_label((worker, load.received_bytes) for worker, load in loads)
    yield table.WORKER_SENT_BYTES.by_label((worker, load.sent_bytes) for worker, load in loads)
    yield table.WORKER_DISK_BYTES.by_label((worker, m.disk_bytes) for worker, m in machines)
    yield table.WORKER_DISK_FREE_BYTES.by_label((worker, m.free_disk_bytes) for worker, m in machines)
    yield table.REPLICA_BUSY.text(((worker, r.model, r.id), r.busy) for worker, r in reports)
    yield table.REPLICA_GPU.text(gpus)


def _of_engines(view: FleetView) -> Iterator[str]:
    told = [
        ((worker, r.model, r.id), r.figures)
        for worker, beat in view.heartbeats.items()
        for r in beat.reports
        if r.model and r.figures is not None
    ]
    yield table.ENGINE_KV_CACHE.text(_told(told, "kv_cache_ratio"))
    yield table.ENGINE_PREFIX_TOKENS.text(_told(told, "prefix_tokens"))
    yield table.ENGINE_PREFIX_HIT_TOKENS.text(_told(told, "prefix_hit_tokens"))
    yield table.ENGINE_RUNNING.text(_told(told, "running"))
    yield table.ENGINE_WAITING.text(_told(told, "waiting"))


def _gpu_seconds(view: FleetView) -> Iterator[tuple[Labels, float]]:
    for worker, beat in view.heartbeats.items():
        counted: Counter[Labels] = Counter()
        for cell, ms in cells_of(beat.gpu_time.counts).items() if beat.gpu_time else ():
            counted[(worker, cell.gpu, cell.state)] += ms
        yield from ((labels, ms / 1000) for labels, ms in counted.items())


def _of_gpus(view: FleetView) -> Iterator[str]:
    gpus = [((w, str(gpu.index)), gpu) for w, beat in view.heartbeats.items() for gpu in beat.machine.gpus]
    yield table.GPU_INFO.text(((*labels, gpu.name), 1) for labels, gpu in gpus)
    yield table.WORKER_GPU_SECONDS.text(_gpu_seconds(view))
    yield table.GPU_MEMORY_BYTES.text(_told(gpus, "total_bytes"))
    yield table.GPU_MEMORY_FREE_BYTES.text(_told(gpus, "free_bytes"))
    yield table.GPU_UTILIZATION_RATIO.text(_told(gpus, "utilization"))
    yield table.GPU_POWER_WATTS.text(_told(gpus, "power_watts"))
    yield table.GPU_TEMPERATURE_CELSIUS.text(_told(gpus, "temperature_celsius"))
    yield table.GPU_ECC_ERRORS.text(_told(gpus, "ecc_errors"))
    yield table.GPU_XID_ERRORS.text(_told(gpus, "xid_errors"))


def _told(rows: Iterable[tuple[Labels, object]], figure: str) -> Iterator[tuple[Labels, float]]:
    """One figure of each row that has it."""
    for labels, row in rows:
        value: float | None = getattr(row, figure)
        if value is not None:
            yield labels, value
