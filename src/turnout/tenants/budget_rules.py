"""What a tenant may spend in a month, and how it stands with that. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from math import isfinite

from turnout.errors import OverBudget
from turnout.tasks.task_rules import TenantId

EVERYONE = TenantId("*")
"""Its budget is that of every tenant that has none of its own."""


class BudgetLevel(StrEnum):
    OK = "ok"
    WARNING = "warning"
    EXCEEDED = "exceeded"


@dataclass(frozen=True, slots=True)
class Budget:
    """`month` is in the currency of the prices. At the part `soft` of it the tenant is warned; when it is spent, new work is
    refused if it is `hard`. `webhook` is told of both, once a month."""

    month: float
    soft: float = 0.8
    hard: bool = True
    webhook: str | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.month) and self.month > 0):
            raise ValueError("month is an amount above 0")
        if not 0 < self.soft <= 1:
            raise ValueError("soft is a part of the budget: above 0, and 1 at most")


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """What a tenant has spent of its budget in a month (`period`, as 2026-11). `told` are the levels that its webhook knows of."""

    period: str
    budget: Budget
    spent: float = 0.0
    told: tuple[BudgetLevel, ...] = ()

    @property
    def level(self) -> BudgetLevel:
        if self.spent >= self.budget.month:
            return BudgetLevel.EXCEEDED
        return BudgetLevel.WARNING if self.spent >= self.budget.soft * self.budget.month else BudgetLevel.OK

    def header(self, currency: str) -> str:
        """What the tenant reads of it with each answer, from the warning on."""
        amounts = f"spent={self.spent:.2f}; budget={self.budget.month:.2f}; currency={currency}"
        return f"{self.level}; {amounts}; month={self.period}"

    def refuse_if_spent(self, currency: str) -> None:
        """Raises OverBudget."""
        if self.budget.hard and self.level is BudgetLevel.EXCEEDED:
            month = self.budget.month
            raise OverBudget(
                f"The budget of {month:.2f} {currency} for {self.period} is spent ({self.spent:.2f} {currency}).",
                code="budget_exceeded",
            )


def period_of(day: str) -> str:
    return day[:7]


def days_of_month(today: str) -> list[str]:
    """From the first of the month up to `today`."""
    first, last = date.fromisoformat(today).replace(day=1), date.fromisoformat(today)
    return [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]


def budgets_of(
    configured: Mapping[str, Budget], stored: Mapping[TenantId, Budget], tenants: Iterable[TenantId]
) -> dict[TenantId, Budget]:
    """Each tenant's own: what an admin set counts before what the configuration says. `tenants` are those that used something."""
    named = {**{TenantId(name): budget for name, budget in configured.items()}, **stored}
    usual = named.pop(EVERYONE, None)
    if usual is not None:
        named = {**dict.fromkeys(tenants, usual), **named}
    return named


def standing_in(period: str, budget: Budget, spent: float, before: BudgetStanding | None) -> BudgetStanding:
    """What was told in an earlier month is told anew."""
    told = before.told if before is not None and before.period == period else ()
    return BudgetStanding(period, budget, spent, told)


def levels_to_tell(standing: BudgetStanding) -> list[BudgetLevel]:
    """What its webhook should be told of now, in order: also of the warning if all is spent before anybody looked."""
    reached = {
        BudgetLevel.OK: (),
        BudgetLevel.WARNING: (BudgetLevel.WARNING,),
        BudgetLevel.EXCEEDED: (BudgetLevel.WARNING, BudgetLevel.EXCEEDED),
    }[standing.level]
    return [level for level in reached if level not in standing.told]
