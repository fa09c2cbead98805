"""What tenants used and what it cost, over HTTP: a user sees its own tenant's, an admin everyone's."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from turnout.errors import Forbidden, InvalidRequest
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.worker_rules import Enrolment
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.task_rules import TenantId
from turnout.tenants.auth import UserDep
from turnout.tenants.caller import Caller
from turnout.tenants.gpu_cost_rules import CostLine, GpuBill, bills, charges, cost_lines
from turnout.tenants.invoice import HEADERS, invoice_page
from turnout.tenants.key_rules import Role
from turnout.tenants.usage_csv import usage_csv
from turnout.tenants.usage_json import UsageList, cost_of, usage_of, worker_cost_of
from turnout.tenants.usage_rules import UsageBy, day_of

_MAX_DAYS = 92
_USUAL_DAYS = 7

router = APIRouter(tags=["usage"], responses=documented(401, 403, 500, 503))


TenantQuery = Annotated[str | None, Query(max_length=100, description="For admins; everyone if not given.")]


@router.get(
    "/v1/usage",
    response_model=UsageList,
    responses={**documented(400), 200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
    summary="What was used and what it cost",
)
async def usage(
    caller: UserDep,
    gateway: GatewayDep,
    start: Annotated[date | None, Query(description="The first day, in UTC.")] = None,
    end: Annotated[date | None, Query(description="The last day; today if not given.")] = None,
    tenant: TenantQuery = None,
    by: Annotated[
        UsageBy | None,
        Query(description="Which lines a table has; rows by day, tenant and model if not given."),
    ] = None,
    form: Annotated[
        Literal["json", "csv"],
        Query(alias="format", description="JSON has rows and all lines, CSV one table."),
    ] = "json",
) -> UsageList | Response:
    last = end or date.fromisoformat(day_of(gateway.now()))
    first = start or last - timedelta(days=min(_USUAL_DAYS - 1, (last - date.min).days))
    used = await _used(gateway, first, last, _whose(caller, tenant))
    if form == "csv":
        return Response(usage_csv(used, by), media_type="text/csv")
    return used


@router.get(
    "/v1/usage/invoice",
    response_class=Response,
    responses={
        200: {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "A page."},
        **documented(400),
    },
    summary="What a tenant owes for a month, as a page",
)
async def invoice(
    caller: UserDep,
    gateway: GatewayDep,
    month: Annotated[
        str | None,
        Query(pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])$", description="As 2026-11; this one if not given."),
    ] = None,
    tenant: Annotated[
        str | None, Query(max_length=100, description="For admins; their own if not given.")
    ] = None,
) -> Response:
    whose = _whose(caller, tenant or caller.tenant) or caller.tenant
    today = date.fromisoformat(day_of(gateway.now()))
    first = date.fromisoformat(f"{month}-01") if month else today.replace(day=1)
    after = (first + timedelta(days=31)).replace(day=1)
    used = await _used(gateway, first, after - timedelta(days=1), whose)
    page = invoice_page(whose, first.isoformat()[:7], used, sorted(gateway.costs.gpu_prices.items()))
    return Response(page, media_type="text/html", headers=HEADERS)


def _whose(caller: Caller, tenant: str | None) -> TenantId | None:
    """None: everyone's. Raises Forbidden."""
    if caller.role is not Role.ADMIN and tenant not in (None, caller.tenant):
        raise Forbidden("Only an admin's key may see another tenant's usage.", code="role_not_allowed")
    return TenantId(tenant) if tenant is not None else None if caller.role is Role.ADMIN else caller.tenant


async def _used(gateway: Gateway, first: date, last: date, whose: TenantId | None) -> UsageList:
    if first > last:
        raise InvalidRequest("start is after end.", "start", "invalid_value")
    if (last - first).days >= _MAX_DAYS:
        raise InvalidRequest(f"Ask for at most {_MAX_DAYS} days.", "start", "invalid_value")
    days = [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]
    rows = await gateway.stores.tenants.usage.read(days, whose)
    everyone, prices = whose is None, gateway.costs.gpu_prices
    gpu_days = await gateway.stores.tenants.usage.gpu_days(days, workers=everyone)
    charged = charges(rows, gpu_days, prices, everyone=everyone)
    total = cost_lines(charged, lambda _: "total").get("total", CostLine())
    workers: dict[str, GpuBill] = {}
    names: dict[WorkerId, Enrolment] = {}
    if everyone:
        for day in gpu_days:
            for name, bill in bills(day.by_worker, prices).items():
                workers[name] = workers.get(name, GpuBill()).plus(bill)
            free = bills(day.by_model, prices).get("", GpuBill())
            total = replace(total, bill=total.bill.plus(free))
        names = await gateway.stores.fleet.workers.enrolments()
    return UsageList(
        start=first,
        end=last,
        data=[usage_of(charge) for charge in charged],
        currency=gateway.costs.currency,
        priced=bool(prices),
        total=cost_of("total", total),
        unused_cost=round(total.bill.cost.unused, 6),
        models=[cost_of(*line) for line in sorted(cost_lines(charged, lambda row: row.model).items())],
        tenants=[
            cost_of(*line, mean=total) for line in sorted(cost_lines(charged, lambda row: row.tenant).items())
        ],
        workers=[
            worker_cost_of(name, bill, known.name if (known := names.get(WorkerId(name))) else "")
            for name, bill in sorted(workers.items())
        ],
    )
