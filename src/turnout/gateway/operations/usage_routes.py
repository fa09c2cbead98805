"""What tenants used, over HTTP: a user sees its own tenant's, an admin everyone's."""

from datetime import date, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from turnout.domain.errors import Forbidden, InvalidRequest
from turnout.domain.keys import Role
from turnout.domain.tasks import TenantId
from turnout.domain.usage import day_of
from turnout.gateway.auth import UserDep
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.schemas.usage_json import UsageList, usage_of

_MAX_DAYS = 92
_USUAL_DAYS = 7

router = APIRouter(tags=["usage"], responses=documented(401, 403, 500, 503))


@router.get("/v1/usage", responses=documented(400), summary="What was used, by day, tenant and model")
async def usage(
    key: UserDep,
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
    if key.role is not Role.ADMIN and tenant not in (None, key.tenant):
        raise Forbidden("Only an admin's key may see another tenant's usage.", code="role_not_allowed")
    whose = TenantId(tenant) if tenant is not None else None if key.role is Role.ADMIN else key.tenant
    days = [(first + timedelta(days=n)).isoformat() for n in range((last - first).days + 1)]
    rows = await gateway.stores.usage.read(days, whose)
    return UsageList(start=first, end=last, data=[usage_of(row) for row in rows])
