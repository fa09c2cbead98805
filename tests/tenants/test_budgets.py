"""Budgets: when a tenant is warned, when it is refused, and whose budget counts."""

import pytest

from turnout.errors import OverBudget
from turnout.tasks.task_rules import TenantId
from turnout.tenants.budget_rules import (
    Budget,
    BudgetLevel,
    BudgetStanding,
    budgets_of,
    days_of_month,
    levels_to_tell,
    period_of,
    standing_in,
)

ACME, OTHER, EVERYONE = TenantId("acme"), TenantId("other"), TenantId("*")
HUNDRED = Budget(100.0)


@pytest.mark.parametrize(
    ("spent", "level"),
    [
        (0.0, BudgetLevel.OK),
        (79.99, BudgetLevel.OK),
        (80.0, BudgetLevel.WARNING),
        (100.0, BudgetLevel.EXCEEDED),
    ],
)
def test_the_level_follows_from_what_was_spent(spent: float, level: BudgetLevel) -> None:
    assert BudgetStanding("2026-11", HUNDRED, spent).level is level


def test_only_a_hard_budget_refuses_and_says_why() -> None:
    BudgetStanding("2026-11", HUNDRED, 99.0).refuse_if_spent("EUR")
    BudgetStanding("2026-11", Budget(100, hard=False), 500.0).refuse_if_spent("EUR")
    with pytest.raises(
        OverBudget, match=r"^The budget of 100\.00 EUR for 2026-11 is spent \(100\.50 EUR\)\.$"
    ) as raised:
        BudgetStanding("2026-11", HUNDRED, 100.5).refuse_if_spent("EUR")
    assert (raised.value.status, raised.value.code, raised.value.retryable) == (402, "budget_exceeded", False)


def test_each_level_is_told_once() -> None:
    warned, exceeded = BudgetLevel.WARNING, BudgetLevel.EXCEEDED
    assert levels_to_tell(BudgetStanding("2026-11", HUNDRED, 85.0)) == [warned]
    assert levels_to_tell(BudgetStanding("2026-11", HUNDRED, 85.0, (warned,))) == []
    assert levels_to_tell(BudgetStanding("2026-11", HUNDRED, 101.0, (warned,))) == [exceeded]
    assert levels_to_tell(BudgetStanding("2026-11", HUNDRED, 101.0)) == [warned, exceeded], (
        "all spent at once"
    )
    assert levels_to_tell(BudgetStanding("2026-11", HUNDRED, 101.0, (exceeded,))) == [warned]
    assert levels_to_tell(BudgetStanding("2026-11", HUNDRED, 1.0)) == []


def test_what_was_told_counts_for_its_month_alone() -> None:
    told = BudgetStanding("2026-11", HUNDRED, 85.0, (BudgetLevel.WARNING,))
    later = standing_in("2026-11", Budget(50), 90.0, told)
    assert later == BudgetStanding("2026-11", Budget(50), 90.0, (BudgetLevel.WARNING,))
    assert standing_in("2026-12", HUNDRED, 81.0, told) == BudgetStanding("2026-12", HUNDRED, 81.0)
    assert standing_in("2026-11", HUNDRED, 81.0, None) == BudgetStanding("2026-11", HUNDRED, 81.0)


def test_an_admin_s_budget_counts_before_the_configuration_s() -> None:
    configured = {"acme": HUNDRED, "*": Budget(5)}
    assert budgets_of(configured, {}, [OTHER]) == {ACME: HUNDRED, OTHER: Budget(5)}
    assert budgets_of(configured, {ACME: Budget(7), EVERYONE: Budget(9)}, [OTHER]) == {
        ACME: Budget(7),
        OTHER: Budget(9),
    }
    assert budgets_of({}, {}, [OTHER]) == {}


def test_a_month_begins_with_its_first_day() -> None:
    assert days_of_month("2026-11-03") == ["2026-11-01", "2026-11-02", "2026-11-03"]
    assert days_of_month("2026-12-01") == ["2026-12-01"]
    assert period_of("2026-12-01") == "2026-12"


@pytest.mark.parametrize(
    ("month", "soft"), [(0, 0.8), (-1, 0.8), (float("inf"), 0.8), (float("nan"), 0.8), (1, 0), (1, 1.1)]
)
def test_a_budget_that_makes_no_sense_is_refused(month: float, soft: float) -> None:
    problem = (
        "month is an amount above 0" if month != 1 else "soft is a part of the budget: above 0, and 1 at most"
    )
    with pytest.raises(ValueError, match=f"^{problem}$"):
        Budget(month, soft)
    Budget(0.01, 1.0)


def test_a_tenant_reads_how_it_stands() -> None:
    standing = BudgetStanding("2026-11", HUNDRED, 85.0)
    assert standing.header("EUR") == "warning; spent=85.00; budget=100.00; currency=EUR; month=2026-11"
