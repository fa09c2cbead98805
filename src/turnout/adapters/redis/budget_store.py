"""Budgets in Redis: those that admins set, and how tenants stand with theirs."""

from collections.abc import Mapping

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.records import read_all, text
from turnout.domain.budgets import Budget, BudgetStanding
from turnout.domain.tasks import TenantId
from turnout.schemas.task_records import BUDGET, BUDGET_STANDING


class RedisBudgets:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client

    async def all(self) -> dict[TenantId, Budget]:
        async with translated():
            found = await self._client.hgetall(self._link.keys.budgets())
        docs = {TenantId(text(tenant)): doc for tenant, doc in found.items()}
        return await read_all(self._link, "budget", docs, BUDGET.load)

    async def put(self, tenant: TenantId, budget: Budget) -> None:
        async with translated():
            await self._client.hset(self._link.keys.budgets(), tenant, BUDGET.dump(budget))

    async def remove(self, tenant: TenantId) -> bool:
        async with translated():
            return bool(await self._client.hdel(self._link.keys.budgets(), tenant))

    async def standings(self) -> dict[TenantId, BudgetStanding]:
        async with translated():
            found = await self._client.hgetall(self._link.keys.budget_standings())
        docs = {TenantId(text(tenant)): doc for tenant, doc in found.items()}
        return await read_all(self._link, "budget standing", docs, BUDGET_STANDING.load)

    async def publish(self, standings: Mapping[TenantId, BudgetStanding]) -> None:
        key = self._link.keys.budget_standings()
        docs = {tenant: BUDGET_STANDING.dump(standing) for tenant, standing in standings.items()}
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            if docs:
                pipe.hset(key, mapping=docs)
            await pipe.execute()
