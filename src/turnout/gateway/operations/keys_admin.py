"""Keys over HTTP, for admins: create (the token is shown once), list, revoke."""

import secrets

from fastapi import APIRouter, Request

from turnout.domain.errors import NotFound
from turnout.domain.keys import mint
from turnout.domain.tasks import TenantId
from turnout.gateway.auth import AdminDep
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.observe import get_log
from turnout.schemas.openai_json import KeyDeleted, KeyList, KeyRequest, KeyShown, key_of

router = APIRouter(tags=["keys"], responses=documented(401, 403, 500, 503))


@router.post(
    "/v1/keys",
    responses=documented(400, 413, 415),
    openapi_extra=json_body(KeyRequest),
    summary="Create a key",
)
async def create(request: Request, admin: AdminDep, gateway: GatewayDep) -> KeyShown:
    body = await read_json(request, KeyRequest)
    key, token = mint(
        secrets.token_hex(8),
        secrets.token_urlsafe(32),
        TenantId(body.tenant),
        body.role,
        body.name,
        gateway.now(),
    )
    await gateway.stores.keys.add(key)
    get_log().info("key created", key=key.id, tenant=key.tenant, role=key.role, by=admin.id)
    return key_of(key, token)


@router.get("/v1/keys", summary="List keys")
async def index(admin: AdminDep, gateway: GatewayDep) -> KeyList:
    return KeyList(data=[key_of(key) for key in await gateway.stores.keys.all()])


@router.delete("/v1/keys/{key_id}", responses=documented(404), summary="Revoke a key")
async def revoke(key_id: str, admin: AdminDep, gateway: GatewayDep) -> KeyDeleted:
    if not await gateway.stores.keys.revoke(key_id):
        raise NotFound(f"There is no key {key_id[:100]}.", "key_id", "key_not_found")
    gateway.keys.drop(key_id)
    get_log().info("key revoked", key=key_id, by=admin.id)
    return KeyDeleted(id=key_id)
