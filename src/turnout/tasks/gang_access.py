"""Who calls as a gang: by a token of the gang's, or of one of its attempts, whose holder is still good.

A worker that was evicted, or whose key was revoked, and a key that was revoked take their gangs' tokens along within
`_KEEP_S`.
"""

from collections.abc import Callable

from turnout.errors import Unauthorized
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.worker_store import OrderStore, WorkerStore
from turnout.tasks.gang_tokens import JOB, GangRight, GangTokens
from turnout.tenants.key_ring import KeyRing

_KEEP_S = 2.0
_MAX_KEPT = 10_000
_WORKER = "w-"  # ids of keys are hexadecimal


class GangAccess:
    """`tokens` signs for gangs that workers run when their orders are handed out."""

    def __init__(
        self,
        tokens: GangTokens,
        workers: WorkerStore,
        orders: OrderStore,
        keys: KeyRing,
        now: Callable[[], float],
    ) -> None:
        self.tokens = tokens
        self._workers = workers
        self._orders = orders
        self._keys = keys
        self._now = now
        self._good_until: dict[tuple[str, str], float] = {}  # by holder and gang

    async def read(self, token: str) -> GangRight:
        """Raises Unauthorized."""
        right = self.tokens.read(token)
        if right is None:
            await self._keys.check_data()  # lost data makes every signature unknown
            raise _no_right()
        await self.check(right)
        return right

    async def check(self, right: GangRight) -> None:
        """Raises Unauthorized when its holder is no longer good."""
        now = self._now()
        if right.expires_at and now >= right.expires_at:
            raise _no_right()
        holder = right.holder, right.gang
        if self._good_until.get(holder, 0.0) > now:
            return
        if not await self._is_good(right):
            await self._keys.check_data()
            raise _no_right()
        if len(self._good_until) >= _MAX_KEPT:
            self._good_until.clear()
        self._good_until[holder] = now + _KEEP_S

    async def may_claim(self, right: GangRight) -> bool:
        """A worker's gang gets tasks only while the worker is ordered to have it."""
        await self.check(right)
        if not right.holder.startswith(_WORKER):
            return True
        sheet = await self._orders.get(WorkerId(right.holder))
        return sheet is None or any(order.replica == ReplicaId(right.gang) for order in sheet.orders)

    async def _is_good(self, right: GangRight) -> bool:
        if right.holder == JOB:
            return True
        if not right.holder.startswith(_WORKER):
            return await self._keys.is_valid(right.holder)
        worker = await self._workers.enrolled(WorkerId(right.holder))
        return worker is not None and bool(worker.key) and await self._keys.is_valid(worker.key)


def _no_right() -> Unauthorized:
    return Unauthorized("This is no gang's token, or its right has ended.", code="invalid_gang_token")
