"""Budgets that admins set, and how tenants stand with theirs."""

from collections.abc import Mapping
from typing import Protocol

from turnout.domain.budgets import Budget, BudgetStanding
from turnout.domain.tasks import TenantId


class BudgetStore(Protocol):
    """Besides those of the configuration. The manager writes standings, gateways read them."""

    async def all(self) -> dict[TenantId, Budget]: ...

    async def put(self, tenant: TenantId, budget: Budget) -> None: ...

    async def remove(self, tenant: TenantId) -> bool:
        """False when there was none."""
        ...

    async def standings(self) -> dict[TenantId, BudgetStanding]: ...

    async def publish(self, standings: Mapping[TenantId, BudgetStanding]) -> None:
        """Of all tenants that have a budget; others have none from now on."""
        ...
