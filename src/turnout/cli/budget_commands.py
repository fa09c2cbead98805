"""`turnout budgets`: what tenants may spend in a month."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.formatting import done, one_line, table
from turnout.cli.options import Common, JsonOption, with_common

if TYPE_CHECKING:
    from turnout.tenants.budget_json import BudgetShown

TenantArgument = Annotated[str, typer.Argument(help="Whose; * is for every tenant without its own.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="What tenants may spend in a month.")
    group.command("list")(list_budgets)
    group.command("set")(set_budget)
    group.command("remove")(remove_budget)
    app.add_typer(group, name="budgets")


@with_common
def list_budgets(common: Common, as_json: JsonOption = False) -> None:
    """Budgets, and what was spent of them this month; with a user's key your own."""
    from turnout.cli.server_answers import read
    from turnout.tenants.budget_json import BudgetList

    answer = common.call("GET", "v1", "budgets")
    if as_json:
        print(json.dumps(answer))
        return
    found = read(BudgetList, answer).data
    if not found:
        print("there are no budgets", file=sys.stderr)
    else:
        print(table(HEADINGS, [_row(budget) for budget in found]))


@with_common
def set_budget(
    common: Common,
    tenant: TenantArgument,
    month: Annotated[float, typer.Option(help="For a month, in the currency of the prices.")],
    soft: Annotated[float, typer.Option(help="The part of it at which the tenant is warned.")] = 0.8,
    hard: Annotated[bool, typer.Option(help="Refuse new work once it is spent.")] = True,
    webhook: Annotated[str | None, typer.Option(help="A URL that is told of both, once a month.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Set a tenant's budget; it counts before what the configuration says."""
    body = {"month": month, "soft": soft, "hard": hard, "webhook": webhook}
    answer = common.call("PUT", "v1", "budgets", tenant, body=body)
    print(json.dumps(answer) if as_json else f"{one_line(tenant)} may spend {month:g} a month")


@with_common
def remove_budget(common: Common, tenant: TenantArgument, as_json: JsonOption = False) -> None:
    """Remove a budget that was set; what the configuration says counts again."""
    common.call("DELETE", "v1", "budgets", tenant)
    print(done(as_json, f"{one_line(tenant)}: budget removed", tenant=tenant, removed=True))


HEADINGS = ("TENANT", "BUDGET", "SPENT", "LEVEL", "HARD", "SET BY")


def _row(budget: "BudgetShown") -> tuple[str, ...]:
    return (
        one_line(budget.tenant),
        f"{budget.month:.2f} {one_line(budget.currency)}",
        "-" if budget.spent is None else f"{budget.spent:.2f}",
        one_line(budget.level or "-"),
        "yes" if budget.hard else "no",
        budget.source,
    )
