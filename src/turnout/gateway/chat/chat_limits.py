"""Holds this gateway's share of each tenant's chat limits, so that most requests are admitted without asking anyone.

One loop refills the shares from the shared accounts ahead of time; nothing else talks to the accounts. A request that
finds its share empty waits for the next refill. If the account is empty too, that request is refused, and for a moment
so are those after it, without another look.
"""

import asyncio
from collections.abc import Callable

from turnout.domain.errors import Unavailable
from turnout.domain.quotas import ChatLimits, TenantShare
from turnout.domain.tasks import TenantId
from turnout.observe import get_log
from turnout.ports.quotas import Quotas

_REFILL_S = 2.0  # slots are renewed, and what lies idle is given back, this often
_PAUSE_S = 0.005  # between two rounds, so that a busy tenant's requests are paid for in batches
_AT_ONCE = 32  # accounts that are asked at the same time

log = get_log()


class _Account:
    """One tenant's share; `refilled` is the promise of the next refill, if somebody waits for it."""

    __slots__ = ("refilled", "share", "tenant")

    def __init__(self, tenant: TenantId, limits: ChatLimits) -> None:
        self.tenant = tenant
        self.share = TenantShare(limits)
        self.refilled: asyncio.Future[Unavailable | None] | None = None


class ChatShares:
    """`now` is a monotonic clock; `name` is this gateway's, and new for each process."""

    def __init__(self, quotas: Quotas, name: str, limits: ChatLimits, now: Callable[[], float]) -> None:
        self._quotas = quotas
        self._name = name
        self._limits = limits
        self._now = now
        self._accounts: dict[TenantId, _Account] = {}
        self._due: dict[TenantId, _Account] = {}
        self._refill_due = asyncio.Event()

    def enter(self, tenant: TenantId) -> TenantShare | None:
        """The tenant's share with one more request in it, to be given back with `leave`; None when the request must
        wait. Raises Limited."""
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = _Account(tenant, self._limits)
        share = account.share
        if share.enter():
            if share.low:
                self._refill_soon(account)
            return share
        share.refuse_if_exhausted(self._now())
        return None

    async def wait_enter(self, tenant: TenantId) -> TenantShare:
        """The same for a request that has to wait. Raises Limited, and Unavailable if the account cannot be read."""
        while True:
            share = self.enter(tenant)
            if share is not None:
                return share
            account = self._accounts[tenant]
            account.share.waiting += 1
            try:
                await self._wait_refill(account)
            finally:
                account.share.waiting -= 1

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_REFILL_S):
                    await self._refill_due.wait()
            except TimeoutError:
                self._drop_unused()
                self._due = dict(self._accounts) if self._limits.any else {}
            self._refill_due.clear()
            due, self._due = list(self._due.values()), {}
            for start in range(0, len(due), _AT_ONCE):
                async with asyncio.TaskGroup() as group:
                    for account in due[start : start + _AT_ONCE]:
                        group.create_task(self._refill(account), name=f"refill {account.tenant}")
            await asyncio.sleep(_PAUSE_S)

    async def _wait_refill(self, account: _Account) -> None:
        refilled = account.refilled
        if refilled is None:
            refilled = account.refilled = asyncio.get_running_loop().create_future()
        self._refill_soon(account)
        problem = await asyncio.shield(refilled)
        if problem is not None:
            raise problem

    def _refill_soon(self, account: _Account) -> None:
        self._due[account.tenant] = account
        self._refill_due.set()

    async def _refill(self, account: _Account) -> None:
        share, problem = account.share, None
        # Whoever comes from here on waits for the next refill: this one does not count them.
        refilled, account.refilled = account.refilled, None
        request = share.refill_request()
        try:
            grant = await self._quotas.lease(self._name, account.tenant, share.limits, request)
            share.refill(request, grant, self._now())
        except Unavailable as err:
            log.warning("limits not seen", tenant=account.tenant, reason=err.message)
            problem = Unavailable("Limits cannot be seen now.", code="unavailable", retry_after_s=1.0)
        finally:
            if refilled is not None and not refilled.done():
                refilled.set_result(problem)

    def _drop_unused(self) -> None:
        for tenant, account in list(self._accounts.items()):
            if account.refilled is None and account.share.unused:
                del self._accounts[tenant]
