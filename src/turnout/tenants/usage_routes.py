"""What tenants used and what it cost, over HTTP: a user sees its own tenant's, an admin everyone's."""

from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from turnout.errors import Forbidden, InvalidRequest
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.worker_rules import Enrolment
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.task_rules import TenantId
from turnout.tenants.auth import UserDep
from turnout.tenants.gpu_cost_rules import CostLine, GpuBill, bills, charges, cost_lines
from turnout.tenants.key_rules import Role
from turnout.tenants.usage_json import UsageList, cost_of, usage_of, worker_cost_of
from turnout.tenants.usage_rules import day_of

_MAX_DAYS = 92
_USUAL_DAYS = 7

router = APIRouter(tags=["usage"], responses=documented(401, 403, 500, 503))


@router.get("/v1/usage", responses=documented(400), summary="What was used and what it cost")
async def usage(
    caller: UserDep,
    gateway: GatewayDep,
    start: Annotated[date | None, Query(description="The first day, in UTC.")] = None,
    end: Annotated[date | None, Query(description="The last day; today if not given.")] = None,
    tenant: Annotated[
        str | None, Query(max_length=100, description="For admins; everyone if not given.")
    ] = None,
) -> UsageList:
    last = end or date.fromisoformat(day_of(gateway.now()))
    first = start or last - timedelta(days=min(_USUAL_DAYS - 1, (last - date.min).days))
    if first > last:
        raise InvalidRequest("start is after end.", "start", "invalid_value")
    if (last - first).days >= _MAX_DAYS:
        raise InvalidRequest(f"Ask for at most {_MAX_DAYS} days.", "start", "invalid_value")
    if caller.role is not Role.ADMIN and tenant not in (None, caller.tenant):
        raise Forbidden("Only an admin's key may see another tenant's usage.", code="role_not_allowed")
    whose = TenantId(tenant) if tenant is not None else None if caller.role is Role.ADMIN else caller.tenant
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
