"""What the manager keeps and publishes in Redis, and what others read of it.

`fleet:changes` carries only the names of what the manager changed; what is so now is read from its own key. So a
missed entry delays, and never misleads.
"""

from collections.abc import Mapping
from typing import Any

from turnout.fleet import fleet_scripts
from turnout.fleet.fleet_records import GPU_REPORT, HISTORY, ORDERS, REPLICA, REPLICA_COUNTS, ROUTES, STATUSES
from turnout.fleet.fleet_rules import GivenUp
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.publication import FleetChanges, FleetFigures, Publication, SavedFleet
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.status_rules import ModelStatus
from turnout.fleet.worker_store import WORKER_S
from turnout.store.connection import RedisConnection, translated
from turnout.store.key_names import KeyNames
from turnout.store.records import number, read_all, read_one, text
from turnout.tenants.gpu_time_rules import GpuBooking
from turnout.tenants.usage_log import GPU_WORKERS_MS, USAGE_MS

_BATCH = 5_000


class ManagerState:
    """What happened since the manager looked, what an earlier manager left, and where it publishes its decisions."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client

    async def wait_changes(self, after: str, timeout_s: float) -> FleetChanges:
        """What changed after that cursor, as soon as something did. With "" it returns at once, with the newest cursor."""
        stream = self._link.keys.news()
        async with translated(timeout_s + 5):
            if not after:
                newest = await self._client.xrevrange(stream, count=1)
                return FleetChanges(newest[0][0].decode() if newest else "0", models=True)
            read = await self._client.xread(
                {stream: after}, count=_BATCH, block=max(1, int(timeout_s * 1000))
            )
        entries: list[Any] = read[0][1] if read else []
        if not entries:
            return FleetChanges(after)
        named: dict[bytes, set[str]] = {b"w": set(), b"g": set(), b"m": set(), b"q": set()}
        for _, fields in entries:
            for kind, name in fields.items():
                named.setdefault(kind, set()).add(text(name))
        return FleetChanges(
            entries[-1][0].decode(),
            frozenset(WorkerId(w) for w in named[b"w"]),
            frozenset(named[b"g"]),
            bool(named[b"m"]),
        )

    async def saved(self) -> SavedFleet:
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(self._link.keys.replicas())
            pipe.hgetall(self._link.keys.order_versions())
            pipe.hkeys(self._link.keys.routes())
            pipe.hget(self._link.keys.manager(), "notes")
            pipe.hgetall(self._link.keys.gpu_reports())
            replicas, versions, routed, notes, reports = await pipe.execute()
        booked = {WorkerId(text(w)): doc for w, doc in reports.items()}
        docs = {ReplicaId(text(i)): doc for i, doc in replicas.items()}
        return SavedFleet(
            await read_all(self._link, REPLICA, docs),
            {WorkerId(text(w)): number(v) for w, v in versions.items()},
            frozenset(text(name) for name in routed),
            await read_one(self._link, HISTORY, "notes", notes, called="manager"),
            await read_all(self._link, GPU_REPORT, booked),
        )

    async def publish(self, right: str, owner: str, publication: Publication) -> bool:
        """Writes all or nothing; False when `owner` does not hold the mutex `right`."""
        writes = _writes(self._link.keys, publication)
        return await fleet_scripts.publish(
            self._link, right=right, owner=owner, orders_ms=WORKER_S * 1000, writes=writes
        )


def _writes(keys: KeyNames, publication: Publication) -> list[fleet_scripts.Write]:
    writes: list[fleet_scripts.Write] = []
    for replica_id, replica in publication.replicas.items():
        writes.append(_field(keys.replicas(), replica_id, REPLICA.dump(replica) if replica else None))
    for worker, sheet in publication.orders.items():
        if sheet is None:
            # Old orders must not outlive their version: the worker would follow them when it comes back.
            writes.append(_field(keys.order_versions(), worker, None))
            writes.append(("del", keys.orders(worker), "", ""))
            continue
        writes.append(_field(keys.order_versions(), worker, sheet.version))
        writes.append(("orders", keys.orders(worker), sheet.version, ORDERS.dump(sheet.orders)))
        writes.append(("tell", "", "w", worker))
    for model, routes in publication.routes.items():
        writes.append(_field(keys.routes(), model, ROUTES.dump(routes) if routes else None))
        writes.append(("tell", "", "m", model))
    if publication.history is not None:
        writes.append(_field(keys.manager(), "notes", HISTORY.dump(publication.history)))
    if publication.statuses is not None:
        writes.append(_field(keys.manager(), "statuses", STATUSES.dump(dict(publication.statuses))))
    if publication.replica_counts is not None:
        counts = REPLICA_COUNTS.dump(dict(publication.replica_counts))
        writes.append(_field(keys.manager(), "census", counts))
    for decision, count in publication.decision_counts.items():
        writes.append(("hincrby", keys.decision_counts(), decision, count))
    if publication.gpu_time is not None:
        writes += _gpu_writes(keys, publication.gpu_time)
    return writes


def _gpu_writes(keys: KeyNames, booking: GpuBooking) -> list[fleet_scripts.Write]:
    writes: list[fleet_scripts.Write] = [
        ("book", worker, cell.on(booking.day), ms) for (worker, cell), ms in booking.booked.items()
    ]
    if writes:
        writes.append(("expire", keys.gpu_models(booking.day), "", USAGE_MS))
        writes.append(("expire", keys.gpu_workers(booking.day), "", GPU_WORKERS_MS))
    for worker, report in booking.reports.items():
        writes.append(_field(keys.gpu_reports(), worker, GPU_REPORT.dump(report) if report else None))
    return writes


def _field(key: str, field: str, value: bytes | int | None) -> fleet_scripts.Write:
    """Sets a field of a hash; None removes it."""
    return ("hdel", key, field, "") if value is None else ("hset", key, field, value)


class FleetStatus:
    """For those who ask: nothing here is needed to serve a request."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client

    async def statuses(self) -> dict[str, ModelStatus]:
        """How each model stood when the manager last published it."""
        async with translated():
            doc = await self._client.hget(self._link.keys.manager(), "statuses")
        return await read_one(self._link, STATUSES, "statuses", doc, called="manager") or {}

    async def figures(self) -> FleetFigures:
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            pipe.hget(self._link.keys.manager(), "census")
            pipe.hgetall(self._link.keys.decision_counts())
            pipe.smembers(self._link.keys.workers())
            pipe.zcard(self._link.keys.outbox())
            replica_counts, decisions, names, webhooks = await pipe.execute()
            workers = sorted(WorkerId(text(name)) for name in names)
            pipe.time()
            for worker in workers:
                pipe.hget(self._link.keys.heartbeat(worker), "seq")
            (seconds, micros), *beats = await pipe.execute()
        now = seconds + micros / 1e6  # a beat's number is the time at which Redis got it, in microseconds
        return FleetFigures(
            await read_one(self._link, REPLICA_COUNTS, "census", replica_counts, called="manager") or {},
            {text(name): number(count) for name, count in sorted(decisions.items())},
            {w: max(0.0, now - number(seq) / 1e6) for w, seq in zip(workers, beats, strict=True) if seq},
            webhooks,
        )

    async def given_up(self) -> Mapping[str, GivenUp]:
        """The models that cannot be served now, and why."""
        async with translated():
            doc = await self._client.hget(self._link.keys.manager(), "notes")
        history = await read_one(self._link, HISTORY, "notes", doc, called="manager")
        return history.given_up if history else {}
