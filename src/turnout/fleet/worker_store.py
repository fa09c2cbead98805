"""Workers in Redis: registrations, heartbeats, and the orders that they wait for."""

import time
from collections.abc import Collection
from dataclasses import replace

from turnout.errors import no_such
from turnout.fleet import fleet_scripts
from turnout.fleet.fleet_records import ENROLMENT, HEARTBEAT, ORDERS
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.manager_news import tell_manager
from turnout.fleet.worker_rules import Enrolment, OrderSheet, StoredHeartbeat
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import number, read_all, read_one, text
from turnout.store.shared_read import SharedRead

WORKER_S = 7 * 86_400
_HEARTBEAT_S = 3_600


class WorkerStore:
    """A worker that is not heard from for days is forgotten."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client

    async def enrol(self, worker: Enrolment) -> None:
        """Adds a worker, or changes all of it but whether it drains."""
        key = self._link.keys.worker(worker.id)
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(key, "doc", ENROLMENT.dump(worker))
            pipe.expire(key, WORKER_S)
            pipe.sadd(self._link.keys.workers(), worker.id)
            tell_manager(self._link, pipe, "w", worker.id)
            await pipe.execute()

    async def enrolled(self, worker: WorkerId) -> Enrolment | None:
        return (await self._enrolments([worker])).get(worker)

    async def enrolments(self, workers: Collection[WorkerId] | None = None) -> dict[WorkerId, Enrolment]:
        """Of these workers, or of all."""
        if workers is not None:
            return await self._enrolments(workers)
        async with translated():
            names = [text(w) for w in await self._client.smembers(self._link.keys.workers())]
        found = await self._enrolments([WorkerId(name) for name in sorted(names)])
        unseen = [name for name in names if name not in found]
        if unseen:
            async with translated(), self._client.pipeline(transaction=False) as pipe:
                for name in unseen:
                    pipe.hexists(self._link.keys.worker(WorkerId(name)), "doc")
                there = await pipe.execute()  # one that cannot be read, or is of a newer version, stays
                lapsed = [name for name, known in zip(unseen, there, strict=True) if not known]
                if lapsed:
                    await self._client.srem(self._link.keys.workers(), *lapsed)
        return found

    async def _enrolments(self, workers: Collection[WorkerId]) -> dict[WorkerId, Enrolment]:
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.hmget(self._link.keys.worker(worker), "doc", "draining", "evicted")
            found = await pipe.execute()
        there = {w: found for w, found in zip(workers, found, strict=True) if not found[2]}
        docs = {worker: doc for worker, (doc, _, _) in there.items()}
        known = await read_all(self._link, ENROLMENT, docs)
        return {w: replace(enrolment, draining=there[w][1] == b"1") for w, enrolment in known.items()}

    async def evicted(self, worker: WorkerId) -> Enrolment | None:
        """The worker as it was registered, if it was evicted in the last days."""
        async with translated():
            doc, evicted = await self._client.hmget(self._link.keys.worker(worker), "doc", "evicted")
        return await read_one(self._link, ENROLMENT, worker, doc) if evicted else None

    async def evict(self, worker: WorkerId) -> None:
        """Ends the registration for good: the id and its secret are of no more use."""
        key = self._link.keys.worker(worker)
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(key, "evicted", "1")
            pipe.expire(key, WORKER_S)
            pipe.srem(self._link.keys.workers(), worker)
            pipe.delete(self._link.keys.heartbeat(worker), self._link.keys.orders(worker))
            tell_manager(self._link, pipe, "w", worker)
            await pipe.execute()

    async def set_draining(self, worker: WorkerId, draining: bool) -> None:
        """Raises NotFound."""
        if await self.enrolled(worker) is None:
            raise no_such("worker", worker, "worker_id")
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(self._link.keys.worker(worker), "draining", "1" if draining else "0")
            tell_manager(self._link, pipe, "w", worker)
            await pipe.execute()

    async def heard(self, worker: WorkerId, heartbeat: StoredHeartbeat) -> int:
        """Stores a heartbeat; returns its number. Raises NotFound for a worker that should register again."""
        seq = await fleet_scripts.store_heartbeat(
            self._link,
            worker=worker,
            doc=HEARTBEAT.dump(heartbeat),
            heartbeat_ms=_HEARTBEAT_S * 1000,
            worker_ms=WORKER_S * 1000,
        )
        if seq is None:
            raise no_such("worker", worker, "worker_id")
        return seq

    async def heartbeats(self, workers: Collection[WorkerId]) -> dict[WorkerId, StoredHeartbeat]:
        """The last heartbeat of each that has one."""
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.hmget(self._link.keys.heartbeat(worker), "doc", "seq")
            pipe.time()  # a heartbeat's number is the time when it came, by the same clock
            *found, (seconds, microseconds) = await pipe.execute()
        now = seconds * 1_000_000 + microseconds
        docs = {worker: doc for worker, (doc, _) in zip(workers, found, strict=True)}
        seqs = {worker: number(seq) for worker, (_, seq) in zip(workers, found, strict=True)}
        known = await read_all(self._link, HEARTBEAT, docs)
        return {
            worker: replace(heartbeat, seq=seqs[worker], ago_s=max(0.0, (now - seqs[worker]) / 1e6))
            for worker, heartbeat in known.items()
        }


class OrderStore:
    """What the manager wants each worker to run, as the worker reads it."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._changes = SharedRead(link, link.keys.changes(), "w")

    async def get(self, worker: WorkerId) -> OrderSheet | None:
        """None while the manager has given no orders: the worker should go on as it is."""
        async with translated():
            version, doc = await self._link.client.hmget(self._link.keys.orders(worker), "v", "doc")
        orders = await read_one(self._link, ORDERS, worker, doc)
        return None if orders is None else OrderSheet(number(version), orders)

    async def wait(self, worker: WorkerId, seen: int, timeout_s: float) -> OrderSheet | None:
        """The orders as soon as their version is not `seen`; None when the time is over."""
        deadline = time.monotonic() + timeout_s
        async with self._changes.listening(worker) as changed:
            while True:
                changed.clear()
                sheet = await self.get(worker)
                if sheet is not None and sheet.version != seen:
                    return sheet
                if time.monotonic() >= deadline:
                    return None
                await self._changes.wait(changed, deadline)
