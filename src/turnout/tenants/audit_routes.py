"""The audit log over HTTP, for admins."""

from typing import Annotated

from fastapi import APIRouter, Query

from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tenants.audit_json import AuditPage, AuditShown
from turnout.tenants.auth import AdminDep
from turnout.validation import shown_as

router = APIRouter(tags=["audit"], responses=documented(400, 401, 403, 500, 503))


@router.get("/v1/audit", summary="Who did what to keys, models and workers")
async def index(
    admin: AdminDep,
    gateway: GatewayDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        str | None, Query(pattern=r"^[1-9][0-9]{0,18}-[0-9]{1,19}$", description="An entry's id.")
    ] = None,
    query: Annotated[
        str,
        Query(max_length=100, description="What the actor, action, target, address or a detail has in it."),
    ] = "",
) -> AuditPage:
    found = await gateway.stores.tenants.audit.newest(limit + 1, before, query)
    shown = [shown_as(AuditShown, entry, id=entry_id) for entry_id, entry in found[:limit]]
    return AuditPage(data=shown, has_more=len(found) > limit)
