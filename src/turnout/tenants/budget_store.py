"""Budgets in Redis: those that admins set, and how tenants stand with theirs."""

from collections.abc import Mapping

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import LEFT_OUT, RecordKind
from turnout.store.records import read_all, text
from turnout.tasks.task_rules import TenantId
from turnout.tenants.budget_rules import Budget, BudgetStanding

BUDGET_STANDING = RecordKind[BudgetStanding]("budget standing", BudgetStanding, unknown={"told": LEFT_OUT})


BUDGET = RecordKind[Budget]("budget", Budget)


class BudgetStore:
    """Besides those of the configuration. The manager writes standings, gateways read them."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client

    async def all(self) -> dict[TenantId, Budget]:
        async with translated():
            found = await self._client.hgetall(self._link.keys.budgets())
        docs = {TenantId(text(tenant)): doc for tenant, doc in found.items()}
        return await read_all(self._link, BUDGET, docs)

    async def put(self, tenant: TenantId, budget: Budget) -> None:
        async with translated():
            await self._client.hset(self._link.keys.budgets(), tenant, BUDGET.dump(budget))

    async def remove(self, tenant: TenantId) -> bool:
        """False when there was none."""
        async with translated():
            return bool(await self._client.hdel(self._link.keys.budgets(), tenant))

    async def standings(self) -> dict[TenantId, BudgetStanding]:
        async with translated():
            found = await self._client.hgetall(self._link.keys.budget_standings())
        docs = {TenantId(text(tenant)): doc for tenant, doc in found.items()}
        return await read_all(self._link, BUDGET_STANDING, docs)

    async def publish(self, standings: Mapping[TenantId, BudgetStanding]) -> None:
        """Of all tenants that have a budget; others have none from now on."""
        key = self._link.keys.budget_standings()
        docs = {tenant: BUDGET_STANDING.dump(standing) for tenant, standing in standings.items()}
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            if docs:
                pipe.hset(key, mapping=docs)
            await pipe.execute()
