"""How tenants stand with their budgets: adds up what they spent this month, publishes it for the gateways, and puts webhooks
into the outbox.

Days that are over are added up once, and again when GPU time was taken back. What was told is remembered with the standing, so each level is told once a month (at
least once, under the same `webhook-id`, if a manager dies in between).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import BaseModel

from turnout.tasks.task_rules import TenantId
from turnout.tasks.webhook_outbox import Outbox, WebhookMessage, webhook_body
from turnout.telemetry.log import get_log
from turnout.tenants.budget_rules import (
    EVERYONE,
    Budget,
    BudgetLevel,
    BudgetStanding,
    budgets_of,
    days_of_month,
    levels_to_tell,
    period_of,
    standing_in,
)
from turnout.tenants.budget_store import BudgetStore
from turnout.tenants.gpu_cost_rules import charges
from turnout.tenants.notices import NoticePost
from turnout.tenants.usage_log import UsageLog
from turnout.tenants.usage_rules import day_of

log = get_log()

_OPEN_DAYS = 2  # today, and yesterday, whose last requests are being written yet


class BudgetTold(BaseModel):
    tenant: str
    month: str
    spent: float
    budget: float
    currency: str
    refusing: bool


@dataclass(slots=True)
class BudgetAccounts:
    """`configured` are the budgets of the configuration; `operators` hear of everybody's."""

    usage: UsageLog
    budgets: BudgetStore
    configured: Mapping[str, Budget]
    prices: Mapping[str, float]
    currency: str
    outbox: Outbox
    now: Callable[[], float]
    operators: NoticePost | None = None
    _closed: dict[tuple[TenantId, str], float] = field(default_factory=dict[tuple[TenantId, str], float])
    _taken_back: int = 0

    async def look(self) -> None:
        before, stored = await self.budgets.standings(), await self.budgets.all()
        if not (before or stored or self.configured):
            return
        days = days_of_month(day_of(self.now()))
        taken_back = await self.usage.times_taken_back()
        if (
            len(days) <= _OPEN_DAYS or taken_back != self._taken_back
        ):  # or the last month's are needed no more
            self._closed.clear()
        self._taken_back = taken_back
        everyone = EVERYONE in self.configured or EVERYONE in stored
        tenants = await self.usage.tenants(days) if everyone else set[TenantId]()
        standings: dict[TenantId, BudgetStanding] = {}
        for tenant, budget in budgets_of(self.configured, stored, tenants).items():
            spent = await self._spent(tenant, days)
            standings[tenant] = standing_in(period_of(days[-1]), budget, spent, before.get(tenant))
        await self.budgets.publish(standings)
        told: dict[TenantId, BudgetStanding] = {}
        for tenant, standing in standings.items():
            levels = levels_to_tell(standing)
            for level in levels:
                await self._tell(tenant, standing, level)
            if levels:
                told[tenant] = replace(standing, told=(*standing.told, *levels))
        if told:
            await self.budgets.publish({**standings, **told})

    async def _spent(self, tenant: TenantId, days: Sequence[str]) -> float:
        closed = days[:-_OPEN_DAYS]
        unknown = [day for day in closed if (tenant, day) not in self._closed]
        cost = await self._cost(tenant, [*unknown, *days[-_OPEN_DAYS:]])
        for day in unknown:
            self._closed[tenant, day] = cost.get(day, 0.0)
        return sum(self._closed[tenant, day] for day in closed) + sum(
            cost.get(day, 0.0) for day in days[-_OPEN_DAYS:]
        )

    async def _cost(self, tenant: TenantId, days: Sequence[str]) -> dict[str, float]:
        rows = await self.usage.read(days, tenant)
        cost: dict[str, float] = {}
        if rows:
            tables = await self.usage.gpu_days(days, workers=False)
            for charge in charges(rows, tables, self.prices, everyone=False):
                cost[charge.row.day] = cost.get(charge.row.day, 0.0) + charge.bill.cost.held
        return cost

    async def _tell(self, tenant: TenantId, standing: BudgetStanding, level: BudgetLevel) -> None:
        log.warning("budget " + level.value, tenant=tenant, spent=round(standing.spent, 2))
        webhook = standing.budget.webhook
        if webhook is None and self.operators is None:
            return
        data = BudgetTold(
            tenant=tenant,
            month=standing.period,
            spent=round(standing.spent, 2),
            budget=standing.budget.month,
            currency=self.currency,
            refusing=standing.budget.hard and level is BudgetLevel.EXCEEDED,
        )
        body = webhook_body(f"budget.{level}", self.now(), data)
        name = f"evt_budget_{tenant}_{standing.period}_{level}"
        if webhook is not None:
            await self.outbox.put(WebhookMessage(name, tenant, webhook, body), self.now())
        if self.operators is not None:
            await self.operators.put(name, body)
