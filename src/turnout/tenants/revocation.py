"""Ends what a key or a worker has open here once it lost its right: a key that was revoked or has expired, a worker that
was evicted.

Every second each gateway looks up those that have something open at it. So a revocation need not be announced, and no
announcement can be missed. The gateway that a revocation came through ends things at once.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from turnout.errors import Unauthorized, Unavailable
from turnout.fleet.serving import Enrolment, WorkerId
from turnout.fleet.worker_store import WorkerStore
from turnout.relay import Relay, RelayRequest, UpstreamCall
from turnout.telemetry.log import get_log
from turnout.tenants.key_ring import KeyRing, bearer, key_ended
from turnout.tenants.key_rules import split_token
from turnout.tenants.open_connections import OpenConnections

log = get_log()

_CHECK_S = 1.0


class RoutedWorkers(Protocol):
    """The workers that requests are sent to."""

    @property
    def routed(self) -> Collection[WorkerId]: ...
    def withdraw(self, workers: Collection[WorkerId]) -> None: ...


class Revocations:
    """`keys` and `workers` hold what is open, by the id of the key or worker. `worker_of` says where a request is."""

    def __init__(
        self,
        key_ring: KeyRing,
        store: WorkerStore,
        routes: RoutedWorkers,
        relay: Relay,
        worker_of: Callable[[UpstreamCall | None], WorkerId | None],
    ) -> None:
        self.keys = OpenConnections()
        self.workers = OpenConnections()
        self._key_ring = key_ring
        self._store = store
        self._routes = routes
        self._relay = relay
        self._worker_of = worker_of

    async def run(self) -> None:
        while True:
            try:
                await self.check()
            except Unavailable as err:  # nothing can be revoked now, either
                log.warning("revocations were not looked up", reason=err.message)
            await asyncio.sleep(_CHECK_S)

    async def check(self) -> None:
        """Ends everything that is open here and should not be."""
        asked = {*self._routes.routed, *map(WorkerId, self.workers.owners)}
        enrolled = await self._store.enrolments(asked) if asked else {}
        if asked - enrolled.keys():
            await self._key_ring.check_data()  # lost data evicts nobody
        used = {*self.keys.owners, *(worker.key for worker in enrolled.values())}
        used.update(_key_of(one.request) for one in self._relay.requests)
        invalid = await self._key_ring.no_longer_valid(used - {""})
        doomed = [worker for worker in enrolled.values() if worker.key in invalid]
        await self._evict(doomed, "its key is not valid any more")
        self.end(invalid, (asked - enrolled.keys()) | {worker.id for worker in doomed})

    async def revoked(self, key_id: str) -> None:
        """A key was revoked through this gateway: also its workers that have nothing open here are evicted."""
        doomed = [worker for worker in (await self._store.enrolments()).values() if worker.key == key_id]
        await self._evict(doomed, "its key was revoked")
        self.end({key_id}, {worker.id for worker in doomed})

    async def evict(self, worker: Enrolment, reason: str) -> None:
        await self._evict([worker], reason)
        self.end((), {worker.id})

    def end(self, keys: Collection[str], workers: Collection[WorkerId]) -> None:
        """Ends at once what these keys and workers have open here. Requests that were sent to one of the workers go to
        another, if their clients have seen nothing of an answer."""
        if not keys and not workers:
            return
        for key in keys:
            self._key_ring.drop(key)
        self._routes.withdraw(workers)
        self.keys.close(keys)
        self.workers.close(workers)
        for one in tuple(self._relay.requests):
            if _key_of(one.request) in keys:
                one.refuse_caller(key_ended())
            elif self._worker_of(one.call) in workers:
                one.lose_replica()

    async def _evict(self, workers: Collection[Enrolment], reason: str) -> None:
        for worker in workers:
            await self._store.evict(worker.id)
            log.warning("worker evicted", worker=worker.id, name=worker.name, key=worker.key, reason=reason)


def _key_of(request: RelayRequest) -> str:
    """The id of the key that a request came with; empty for what has none, which is refused elsewhere."""
    try:
        parts = split_token(bearer(request.authorization))
    except Unauthorized:
        return ""
    return parts[0] if parts else ""
