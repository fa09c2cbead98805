"""Figures of what this gateway stands on: its connections, its disk and certificate, Redis, the manager."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from turnout.background import BackgroundLoops
from turnout.store.data_health import DataHealth, ServerLoad
from turnout.store.mutex import Mutex
from turnout.tasks.task_events import TaskEvents
from turnout.telemetry.exposition import counter, gauge
from turnout.telemetry.log import dropped_lines

_RIGHTS = ("manager", "fleet")


class _Connections(Protocol):
    @property
    def open_connections(self) -> int: ...
    @property
    def upstream_idle(self) -> int: ...
    @property
    def body_bytes(self) -> int: ...


class _Watchers(Protocol):
    @property
    def cursor(self) -> str | None: ...
    @property
    def count(self) -> int: ...


@dataclass(slots=True)
class ServiceMetrics:
    """`disks` tells (size, free) by what lies there; `certificate_expiry` is None without a certificate."""

    data: DataHealth
    mutex: Mutex
    events: TaskEvents
    background: BackgroundLoops
    relay: _Connections
    max_connections: int
    live: _Watchers
    disks: Callable[[], Mapping[str, tuple[int, int]]]
    certificate_expiry: Callable[[], float | None]
    version: str
    _load: ServerLoad | None = None
    _has_manager: bool = False
    _manager_loops: Mapping[str, str] = field(default_factory=dict[str, str])
    _behind_s: float = 0.0

    async def look(self) -> None:
        """Raises Unavailable; then what was seen before stays."""
        self._load = await self.data.load()
        self._has_manager = all([await self.mutex.holder(right) for right in _RIGHTS])
        self._manager_loops = await self.data.manager_loops()
        cursor = self.live.cursor
        self._behind_s = max(0.0, _seconds(await self.events.newest()) - _seconds(cursor)) if cursor else 0.0

    def text(self, redis_up: bool) -> str:
        load, expiry, disks = self._load, self.certificate_expiry(), self.disks()
        states, restarts = self.background.states(), self.background.restarts()
        return "".join(
            (
                gauge("turnout_build_info", "Which version runs.", ("version",), [((self.version,), 1)]),
                gauge("turnout_redis_up", "Whether Redis answered this scrape.", (), [((), redis_up)]),
                gauge("turnout_redis_ping_seconds", "How long it took.", (), _one(load and load.ping_s)),
                gauge(
                    "turnout_redis_memory_bytes",
                    "Memory that Redis holds.",
                    (),
                    _one(load and load.memory_bytes),
                ),
                gauge(
                    "turnout_redis_memory_limit_bytes",
                    "Memory that Redis may hold: maxmemory, or its machine's.",
                    (),
                    _one((load and load.memory_limit_bytes) or None),
                ),
                gauge("turnout_redis_clients", "Connections to Redis.", (), _one(load and load.clients)),
                gauge(
                    "turnout_manager_up",
                    "Whether a manager is at work.",
                    (),
                    [((), self._has_manager and redis_up)],
                ),
                gauge(
                    "turnout_manager_loop_up",
                    "Whether a background loop of the manager runs.",
                    ("loop",),
                    (((loop,), state == "ok") for loop, state in self._manager_loops.items()),
                ),
                gauge(
                    "turnout_loop_up",
                    "Whether all background loops of this kind run in this gateway.",
                    ("loop",),
                    (((loop,), state == "ok") for loop, state in states.items()),
                ),
                counter(
                    "turnout_loop_restarts_total",
                    "How often a background loop of this gateway was started again.",
                    ("loop",),
                    (((loop,), count) for loop, count in restarts.items()),
                ),
                counter(
                    "turnout_log_lines_dropped_total",
                    "Log lines that could not be written.",
                    (),
                    [((), dropped_lines())],
                ),
                gauge(
                    "turnout_events_behind_seconds",
                    "Between the newest event and the last that was fanned out here.",
                    (),
                    [((), self._behind_s)],
                ),
                gauge("turnout_event_watchers", "Streams of events.", (), [((), self.live.count)]),
                gauge(
                    "turnout_connections",
                    "Open connections: of clients, and idle ones to replicas.",
                    ("side",),
                    [
                        (("client",), self.relay.open_connections),
                        (("upstream_idle",), self.relay.upstream_idle),
                    ],
                ),
                gauge(
                    "turnout_connections_limit",
                    "How many connections clients may have.",
                    (),
                    [((), self.max_connections)],
                ),
                gauge(
                    "turnout_request_body_bytes",
                    "Memory that request bodies take.",
                    (),
                    [((), self.relay.body_bytes)],
                ),
                gauge(
                    "turnout_disk_bytes",
                    "The disk of this gateway's state directory, and of objects in a directory.",
                    ("of",),
                    (((of,), size) for of, (size, _) in disks.items()),
                ),
                gauge(
                    "turnout_disk_free_bytes",
                    "What is free on it.",
                    ("of",),
                    (((of,), free) for of, (_, free) in disks.items()),
                ),
                gauge(
                    "turnout_certificate_expiry_timestamp_seconds",
                    "When the certificate (tls_cert) ends.",
                    (),
                    _one(expiry),
                ),
            )
        )


def _one(value: float | None) -> list[tuple[tuple[str, ...], float]]:
    return [] if value is None else [((), value)]


def _seconds(cursor: str) -> float:
    """When it was written: a cursor begins with Redis's milliseconds."""
    digits = cursor.partition("-")[0]
    return int(digits) / 1000 if digits.isdigit() else 0.0
