"""Budgets over HTTP: admins set and remove them; a user sees its own tenant's."""

from typing import Annotated

from fastapi import APIRouter, Path, Request

from turnout.errors import InvalidRequest, NotFound
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.robot_rules import shown_url
from turnout.tasks.task_rules import TenantId
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import AdminDep, UserDep
from turnout.tenants.budget_json import BudgetDeleted, BudgetList, BudgetRequest, BudgetShown, budget_of
from turnout.tenants.budget_rules import EVERYONE, Budget, budgets_of
from turnout.tenants.key_rules import Role

router = APIRouter(tags=["usage"], responses=documented(401, 403, 500, 503))

TenantPath = Annotated[
    str, Path(pattern=r"^(\*|[A-Za-z0-9_-]{1,64})$", description="`*` is for every tenant without its own.")
]


@router.get("/v1/budgets", summary="Budgets, and how tenants stand with them")
async def index(caller: UserDep, gateway: GatewayDep) -> BudgetList:
    stored, standings = (
        await gateway.stores.tenants.budgets.all(),
        await gateway.stores.tenants.budgets.standings(),
    )
    is_admin, configured = caller.role is Role.ADMIN, gateway.costs.budgets
    shown = {**{TenantId(name): budget for name, budget in configured.items()}, **stored} if is_admin else {}
    own = budgets_of(configured, stored, [*standings] if is_admin else [caller.tenant])
    shown |= own if is_admin else {t: b for t, b in own.items() if t == caller.tenant}
    return BudgetList(
        data=[
            budget_of(
                tenant,
                budget,
                standings.get(tenant),
                by_admin=tenant in stored or (tenant not in configured and EVERYONE in stored),
                currency=gateway.costs.currency,
            )
            for tenant, budget in sorted(shown.items())
        ]
    )


@router.put(
    "/v1/budgets/{tenant}",
    responses=documented(400, 413, 415),
    openapi_extra=json_body(BudgetRequest),
    summary="Set a tenant's budget",
)
async def put(
    tenant: TenantPath, request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep
) -> BudgetShown:
    """It counts before what the configuration says, from the manager's next look on: within 10 s."""
    body = await read_json(request, BudgetRequest)
    if not gateway.costs.gpu_prices:
        raise InvalidRequest("Without prices (gpu_prices) nothing is ever spent.", "month", "no_prices")
    before = {**gateway.costs.budgets, **await gateway.stores.tenants.budgets.all()}.get(TenantId(tenant))
    webhook = body.webhook
    if before is not None and webhook == shown_url(before.webhook):
        webhook = before.webhook  # a robot's whole address is shown to nobody, so nobody can send it back
    elif webhook is not None:
        await gateway.videos.submissions.check_webhook(webhook, admin.turn, "webhook")
    budget = Budget(body.month, body.soft, body.hard, webhook)
    await audit.record(
        admin, AuditAction.BUDGET_SET, tenant, month=str(body.month), hard=str(body.hard).lower()
    )
    await gateway.stores.tenants.budgets.put(TenantId(tenant), budget)
    return budget_of(tenant, budget, None, by_admin=True, currency=gateway.costs.currency)


@router.delete("/v1/budgets/{tenant}", responses=documented(400, 404), summary="Remove a tenant's budget")
async def remove(tenant: TenantPath, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> BudgetDeleted:
    """What the configuration says counts again."""
    if TenantId(tenant) not in await gateway.stores.tenants.budgets.all():
        raise NotFound(f"No admin has set a budget for {tenant}.", "tenant", "budget_not_found")
    await audit.record(admin, AuditAction.BUDGET_REMOVED, tenant)
    await gateway.stores.tenants.budgets.remove(TenantId(tenant))
    return BudgetDeleted(tenant=tenant)
