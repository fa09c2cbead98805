"""Budgets as HTTP shows them."""

from typing import Literal

from pydantic import BaseModel, Field

from turnout.tasks.robot_rules import shown_url
from turnout.tenants.budget_rules import Budget, BudgetStanding
from turnout.validation import Body


class BudgetRequest(Body):
    month: float = Field(gt=0, allow_inf_nan=False, description="For a month, in the currency of the prices.")
    soft: float = Field(0.8, gt=0, le=1, description="The part of it at which the tenant is warned.")
    hard: bool = Field(True, description="Whether new work is refused once it is spent.")
    webhook: str | None = Field(None, max_length=2048, description="Is told of both, once a month.")


class BudgetShown(BaseModel):
    """`spent` and `level` are None until the manager has looked. `source` is who set it: the configuration, or an admin."""

    object: Literal["budget"] = "budget"
    tenant: str
    month: float
    soft: float
    hard: bool
    webhook: str | None
    source: Literal["config", "admin"]
    currency: str
    period: str | None = None
    spent: float | None = None
    level: str | None = None


class BudgetList(BaseModel):
    object: Literal["list"] = "list"
    data: list[BudgetShown]


class BudgetDeleted(BaseModel):
    tenant: str
    object: Literal["budget.deleted"] = "budget.deleted"
    deleted: bool = True


def budget_of(
    tenant: str, budget: Budget, standing: BudgetStanding | None, *, by_admin: bool, currency: str
) -> BudgetShown:
    return BudgetShown(
        tenant=tenant,
        month=budget.month,
        soft=budget.soft,
        hard=budget.hard,
        webhook=shown_url(budget.webhook),
        source="admin" if by_admin else "config",
        currency=currency,
        period=standing.period if standing else None,
        spent=round(standing.spent, 6) if standing else None,
        level=standing.level if standing else None,
    )
