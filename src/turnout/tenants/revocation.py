"""Ends what a caller or a worker has open here once it lost its right: a key or a link that was revoked or has expired, a
person that was disabled or may do something else now, a worker that was evicted.

Every second each gateway looks up those that have something open at it. So a revocation need not be announced, and no
announcement can be missed. The gateway that a revocation came through ends things at once.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from typing import Protocol

from turnout.errors import Unavailable
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.worker_rules import Enrolment
from turnout.fleet.worker_store import WorkerStore
from turnout.relay import Relay, UpstreamCall
from turnout.tasks.share_rules import VideoLink
from turnout.tasks.share_store import ShareStore
from turnout.telemetry.log import get_log
from turnout.tenants.caller import Caller, right_ended
from turnout.tenants.key_ring import KeyRing
from turnout.tenants.open_connections import OpenConnections

log = get_log()

_CHECK_S = 1.0


class RoutedWorkers(Protocol):
    """The workers that requests are sent to."""

    @property
    def routed(self) -> Collection[WorkerId]: ...
    def withdraw(self, workers: Collection[WorkerId]) -> None: ...


class Revocations:
    """`callers` and `workers` hold what is open at the app's routes. The relay's requests name their callers themselves, and
    `worker_of` says where one is."""

    def __init__(
        self,
        key_ring: KeyRing,
        store: WorkerStore,
        shares: ShareStore,
        routes: RoutedWorkers,
        relay: Relay,
        worker_of: Callable[[UpstreamCall | None], WorkerId | None],
    ) -> None:
        self.callers = OpenConnections[Caller]()
        self.workers = OpenConnections[WorkerId]()
        self._key_ring = key_ring
        self._store = store
        self._shares = shares
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
        asked = {*self._routes.routed, *self.workers.owners}
        enrolled = await self._store.enrolments(asked) if asked else {}
        if asked - enrolled.keys():
            await self._key_ring.check_data()  # lost data evicts nobody
        callers = self._open_callers()
        links = {caller.link for caller in callers if caller.link is not None}
        revoked_links = await self._shares.revoked(links) if links else frozenset[VideoLink]()
        by_key = {caller: caller.kept for caller in callers if caller.link is None}
        used = {*by_key.values(), *(worker.key for worker in enrolled.values() if worker.key)}
        keys, now = await self._key_ring.as_they_are(used), time.time()
        ended = {one for one in callers if one.expired(now) or one.link in revoked_links}
        ended |= {one for one, key in by_key.items() if key in keys and not one.still_is(keys[key])}
        doomed = [worker for worker in enrolled.values() if worker.key in keys and keys[worker.key] is None]
        await self._evict(doomed, "its key is not valid any more")
        self._end(ended, (asked - enrolled.keys()) | {worker.id for worker in doomed})

    def _open_callers(self) -> AbstractSet[Caller]:
        asking = {one.request.caller for one in self._relay.requests}
        return {*self.callers.owners, *(one for one in asking if isinstance(one, Caller))}

    async def revoked(self, key_id: str) -> None:
        """A key was revoked, or a person disabled, through this gateway: also its workers that have nothing open here are
        evicted."""
        doomed = [worker for worker in (await self._store.enrolments()).values() if worker.key == key_id]
        await self._evict(doomed, "its key was revoked")
        self._key_ring.drop(key_id)
        callers = {one for one in self._open_callers() if key_id in (one.id, one.parent, one.person)}
        self._end(callers, {worker.id for worker in doomed})

    async def evict(self, worker: Enrolment, reason: str) -> None:
        await self._evict([worker], reason)
        self._end((), {worker.id})

    def _end(self, callers: Collection[Caller], workers: Collection[WorkerId]) -> None:
        """Ends at once what these have open here. Requests that were sent to one of the workers go to another, if their clients
        have seen nothing of an answer."""
        if not callers and not workers:
            return
        for caller in callers:
            self._key_ring.drop(caller.id)
        self._routes.withdraw(workers)
        self.callers.close(callers)
        self.workers.close(workers)
        for one in tuple(self._relay.requests):
            if one.request.caller in callers:
                one.close(right_ended())
            elif self._worker_of(one.call) in workers:
                one.lose_replica()

    async def _evict(self, workers: Collection[Enrolment], reason: str) -> None:
        for worker in workers:
            await self._store.evict(worker.id)
            log.warning("worker evicted", worker=worker.id, name=worker.name, key=worker.key, reason=reason)
