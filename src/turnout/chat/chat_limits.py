"""Holds this gateway's share of each tenant's chat limits, so that most requests are admitted without asking anyone.

One loop refills the shares from the shared accounts ahead of time; nothing else talks to the accounts. A request that
finds its share empty waits for the next refill. If the account is empty too, that request is refused, and for a moment
so are those after it, without another look.

An account that does not answer in `_ASK_S` holds nobody up: the share lends to itself at the tenant's rate, and accounts
are asked again every `_AWAY_S`. A request to an account whose answer was lost is sent again until it is answered, and
counts once, so what was used meanwhile is paid afterwards.
"""

import asyncio
from collections.abc import Callable

from turnout.chat.quota_accounts import Quotas
from turnout.chat.quota_rules import ChatLimits, ShareRequest, TenantShare
from turnout.errors import Unavailable
from turnout.tasks.task_rules import TenantId
from turnout.telemetry.log import get_log

_REFILL_S = 2.0  # permits are renewed, and what lies idle is given back, this often
_PAUSE_S = 0.005  # between two rounds, so that a busy tenant's requests are paid for in batches
_AT_ONCE = 32  # accounts that are asked at the same time
_ASK_S = 0.25
_AWAY_S = 1.0
_WAIT_S = 5.0  # far longer than a round takes: then the loop is being started again

log = get_log()


class _Account:
    """One tenant's share; `refilled` is the promise of the next refill, if somebody waits for it. `unanswered` is the
    request with the number `number`, until it is answered."""

    __slots__ = ("number", "refilled", "share", "tenant", "unanswered")

    def __init__(self, tenant: TenantId, limits: ChatLimits) -> None:
        self.tenant = tenant
        self.share = TenantShare(limits)
        self.refilled: asyncio.Future[None] | None = None
        self.unanswered: ShareRequest | None = None
        self.number = 0


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
        self._away_until: float | None = None  # when to ask again; None: accounts answer

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
        """The same for a request that has to wait. Raises Limited, and Unavailable if no refill comes."""
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
        try:
            async with asyncio.timeout(_WAIT_S):
                await asyncio.shield(refilled)
        except TimeoutError as err:
            raise Unavailable("Limits cannot be seen now.", code="unavailable", retry_after_s=1.0) from err

    def _refill_soon(self, account: _Account) -> None:
        self._due[account.tenant] = account
        self._refill_due.set()

    async def _refill(self, account: _Account) -> None:
        if self._away_until is not None:
            self._lend(account)  # first, so that nobody waits for the answer
            if self._now() < self._away_until:
                return
        share = account.share
        # Whoever comes from here on waits for the next refill: this one does not count them.
        refilled, account.refilled = account.refilled, None
        if account.unanswered is None:
            account.unanswered = share.refill_request()
            account.number += 1
        try:
            async with asyncio.timeout(_ASK_S):
                grant = await self._quotas.lease(
                    self._name, account.tenant, share.limits, account.unanswered, account.number
                )
            share.refill(account.unanswered, grant, self._now())
            account.unanswered = None
            if self._away_until is not None:
                self._away_until = None
                log.warning("chat limits are shared with other gateways again")
        except (Unavailable, TimeoutError) as err:
            if self._away_until is None:
                log.warning(
                    "chat limits not shared with other gateways, counting alone",
                    tenant=account.tenant,
                    reason=str(err) or "no answer in time",
                )
            self._away_until = self._now() + _AWAY_S
            share.lend(self._now())
        finally:
            if refilled is not None and not refilled.done():
                refilled.set_result(None)

    def _lend(self, account: _Account) -> None:
        account.share.lend(self._now())
        refilled, account.refilled = account.refilled, None
        if refilled is not None and not refilled.done():
            refilled.set_result(None)

    def _drop_unused(self) -> None:
        for tenant, account in list(self._accounts.items()):
            if account.refilled is None and account.unanswered is None and account.share.unused:
                del self._accounts[tenant]
