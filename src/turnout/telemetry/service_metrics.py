"""Figures of what this gateway stands on: its connections, its disk and certificate, Redis, the manager."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from turnout.background import BackgroundLoops
from turnout.store.data_health import DataHealth, ServerLoad
from turnout.store.mutex import Mutex
from turnout.tasks.task_events import TaskEvents
from turnout.telemetry import metric_table as table
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

    async def look_at_redis(self) -> None:
        """Raises Unavailable, as the others; then what was seen before stays."""
        self._load = await self.data.load()

    async def look_at_manager(self) -> None:
        self._has_manager = all([await self.mutex.holder(right) for right in _RIGHTS])
        self._manager_loops = await self.data.manager_loops()

    async def look_at_events(self) -> None:
        cursor = self.live.cursor
        self._behind_s = max(0.0, _seconds(await self.events.newest()) - _seconds(cursor)) if cursor else 0.0

    def text(self, redis_up: bool) -> str:
        return "".join((*self._shared_texts(redis_up), *self._own_texts()))

    def _shared_texts(self, redis_up: bool) -> Iterator[str]:
        load, manager_loops = self._load, self._manager_loops.items()
        yield table.REDIS_UP.one(redis_up)
        yield table.REDIS_PING.one(load and load.ping_s)
        yield table.REDIS_MEMORY_BYTES.one(load and load.memory_bytes)
        yield table.REDIS_MEMORY_LIMIT_BYTES.one((load and load.memory_limit_bytes) or None)
        yield table.REDIS_CLIENTS.one(load and load.clients)
        yield table.MANAGER_UP.one(self._has_manager and redis_up)
        yield table.MANAGER_LOOP_UP.by_label((loop, state == "ok") for loop, state in manager_loops)

    def _own_texts(self) -> Iterator[str]:
        disks, relay = self.disks().items(), self.relay
        loops = self.background.states().items()
        yield table.BUILD_INFO.by_label([(self.version, 1)])
        yield table.LOOP_UP.by_label((loop, state == "ok") for loop, state in loops)
        yield table.LOOP_RESTARTS.by_label(self.background.restarts().items())
        yield table.LOG_LINES_DROPPED.one(dropped_lines())
        yield table.EVENTS_BEHIND.one(self._behind_s)
        yield table.EVENT_WATCHERS.one(self.live.count)
        yield table.CONNECTIONS.by_label(
            [("client", relay.open_connections), ("upstream_idle", relay.upstream_idle)]
        )
        yield table.CONNECTIONS_LIMIT.one(self.max_connections)
        yield table.REQUEST_BODY_BYTES.one(relay.body_bytes)
        yield table.DISK_BYTES.by_label((of, size) for of, (size, _) in disks)
        yield table.DISK_FREE_BYTES.by_label((of, free) for of, (_, free) in disks)
        yield table.CERTIFICATE_EXPIRY.one(self.certificate_expiry())


def _seconds(cursor: str) -> float:
    """When it was written: a cursor begins with Redis's milliseconds."""
    digits = cursor.partition("-")[0]
    return int(digits) / 1000 if digits.isdigit() else 0.0
