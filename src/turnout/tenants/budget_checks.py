"""How tenants stand with their budgets, as this gateway knows it: read every few seconds, asked for every request.

What the manager added up is at most `_LOOK_S` older here. While it cannot be read, what was read last counts, up to the end
of the month."""

import asyncio
from collections import Counter
from collections.abc import Callable

from turnout.errors import Unavailable
from turnout.tasks.task_rules import TenantId
from turnout.telemetry.log import get_log
from turnout.telemetry.metric_table import BUDGETS
from turnout.tenants.budget_rules import BudgetLevel, BudgetStanding, period_of
from turnout.tenants.budget_store import BudgetStore
from turnout.tenants.usage_rules import day_of

HEADER = "x-turnout-budget"
_LOOK_S = 5.0

log = get_log()


class BudgetChecks:
    """`now` is the wall clock, which says which month it is."""

    def __init__(self, budgets: BudgetStore, currency: str, now: Callable[[], float]) -> None:
        self._budgets = budgets
        self._currency = currency
        self._now = now
        self._standings: dict[TenantId, BudgetStanding] = {}
        self._warned: dict[TenantId, BudgetStanding] = {}
        self._header_lines: dict[TenantId, bytes] = {}

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        try:
            self._standings = await self._budgets.standings()
        except Unavailable as err:
            log.warning("budgets not read", reason=err.message)
        period = period_of(day_of(self._now()))
        self._warned = {
            tenant: standing
            for tenant, standing in self._standings.items()
            if standing.period == period and standing.level is not BudgetLevel.OK
        }
        self._header_lines = {
            tenant: f"{HEADER}: {standing.header(self._currency)}\r\n".encode()
            for tenant, standing in self._warned.items()
        }

    def refuse_if_spent(self, tenant: TenantId) -> None:
        """Raises OverBudget."""
        standing = self._warned.get(tenant)
        if standing is not None:
            standing.refuse_if_spent(self._currency)

    def headers(self, tenant: TenantId) -> dict[str, str]:
        standing = self._warned.get(tenant)
        return {} if standing is None else {HEADER: standing.header(self._currency)}

    def header_lines(self, tenant: TenantId) -> bytes:
        return self._header_lines.get(tenant, b"")

    def text(self) -> str:
        counts = Counter(standing.level for standing in self._standings.values())
        return BUDGETS.by_label((level, counts[level]) for level in BudgetLevel)
