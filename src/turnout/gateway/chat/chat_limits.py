"""Holds this gateway's share of each tenant's chat limits: requests enter without asking anyone, one loop asks ahead.

The loop is the only one that speaks to the shared accounts. A request that finds the purse empty waits for its next
look; when the account is empty too, it is refused, and so are those after it for a moment without another look.
"""

import asyncio
from collections.abc import Callable

from turnout.domain.errors import Unavailable
from turnout.domain.quotas import ChatLimits, TenantShare
from turnout.domain.tasks import TenantId
from turnout.observe import get_log
from turnout.ports import Quotas

_LOOK_S = 2.0  # slots are renewed, and what lies idle is given back, this often
_REST_S = 0.005  # between two rounds, so that a busy tenant is asked for in batches
_AT_ONCE = 32  # accounts that are asked at the same time

log = get_log()


class _Account:
    """A purse, and the promise of the next look at it."""

    __slots__ = ("looked", "purse", "tenant")

    def __init__(self, tenant: TenantId, limits: ChatLimits) -> None:
        self.tenant = tenant
        self.purse = TenantShare(limits)
        self.looked: asyncio.Future[Unavailable | None] | None = None


class ChatShares:
    """`now` is a monotonic clock; `name` is this gateway's, and new for each process."""

    def __init__(self, quotas: Quotas, name: str, limits: ChatLimits, now: Callable[[], float]) -> None:
        self._quotas = quotas
        self._name = name
        self._limits = limits
        self._now = now
        self._accounts: dict[TenantId, _Account] = {}
        self._due: dict[TenantId, _Account] = {}
        self._called = asyncio.Event()

    def purse(self, tenant: TenantId) -> TenantShare | None:
        """The purse with one more request in it, to be given back with `leave`; None when the request must wait.
        Raises Limited."""
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = _Account(tenant, self._limits)
        purse = account.purse
        if purse.enter():
            if purse.low:
                self._call(account)
            return purse
        purse.refuse_if_dry(self._now())
        return None

    async def wait(self, tenant: TenantId) -> TenantShare:
        """The same for one that has to wait. Raises Limited, and Unavailable when the account cannot be seen."""
        while True:
            purse = self.purse(tenant)
            if purse is not None:
                return purse
            account = self._accounts[tenant]
            account.purse.waiting += 1
            try:
                await self._look(account)
            finally:
                account.purse.waiting -= 1

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._called.wait()
            except TimeoutError:
                self._forget()
                self._due = dict(self._accounts) if self._limits.any else {}
            self._called.clear()
            due, self._due = list(self._due.values()), {}
            for start in range(0, len(due), _AT_ONCE):
                async with asyncio.TaskGroup() as group:
                    for account in due[start : start + _AT_ONCE]:
                        group.create_task(self._settle(account), name="allowance")
            await asyncio.sleep(_REST_S)

    async def _look(self, account: _Account) -> None:
        looked = account.looked
        if looked is None:
            looked = account.looked = asyncio.get_running_loop().create_future()
        self._call(account)
        problem = await asyncio.shield(looked)
        if problem is not None:
            raise problem

    def _call(self, account: _Account) -> None:
        self._due[account.tenant] = account
        self._called.set()

    async def _settle(self, account: _Account) -> None:
        purse, problem = account.purse, None
        # Whoever comes from here on waits for the next look: this wish does not count them.
        looked, account.looked = account.looked, None
        wish = purse.wish()
        try:
            grant = await self._quotas.lease(self._name, account.tenant, purse.limits, wish)
            purse.absorb(wish, grant, self._now())
        except Unavailable as err:
            log.warning("limits not seen", tenant=account.tenant, reason=err.message)
            problem = Unavailable("Limits cannot be seen now.", code="unavailable", retry_after_s=1.0)
        finally:
            if looked is not None and not looked.done():
                looked.set_result(problem)

    def _forget(self) -> None:
        for tenant, account in list(self._accounts.items()):
            if account.looked is None and account.purse.forgettable:
                del self._accounts[tenant]
