"""Keys over HTTP, for admins: create (the token is shown once), list, rotate, revoke. What a key opened ends with it."""

import secrets
from typing import Annotated

from fastapi import APIRouter, Query, Request

from turnout.errors import Conflict, no_such
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import AdminDep
from turnout.tenants.caller import refuse_persons_key
from turnout.tenants.key_json import KeyDeleted, KeyList, KeyRequest, KeyRotation, KeyShown, key_of
from turnout.tenants.key_rules import in_use_by, mint, rotate, tenant_of_new

router = APIRouter(tags=["keys"], responses=documented(401, 403, 500, 503))


@router.post(
    "/v1/keys",
    responses=documented(400, 413, 415),
    openapi_extra=json_body(KeyRequest),
    summary="Create a key",
)
async def create(request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> KeyShown:
    body = await read_json(request, KeyRequest)
    refuse_persons_key(admin)
    key_id = secrets.token_hex(8)
    key, token = mint(
        key_id,
        secrets.token_urlsafe(32),
        tenant_of_new(body.tenant, body.role, key_id),
        body.role,
        body.name,
        gateway.now(),
        body.expires_in_s,
    )
    await audit.record(
        admin, AuditAction.KEY_CREATED, key.id, tenant=key.tenant, role=key.role, name=key.name
    )
    await gateway.stores.tenants.keys.add(key)
    return key_of(key, token)


@router.post(
    "/v1/keys/{key_id}/rotate",
    responses=documented(400, 404, 413, 415),
    openapi_extra=json_body(KeyRotation),
    summary="Replace a key",
)
async def replace(
    key_id: str, request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep
) -> KeyShown:
    """A new key that may do the same; the old one works until the overlap ends."""
    body = await read_json(request, KeyRotation)
    refuse_persons_key(admin)
    now = gateway.now()
    old = await gateway.stores.tenants.keys.find(key_id)
    if old is None or old.expired(now) or not old.alone:
        raise no_such("key", key_id, "key_id")
    new, token, ending = rotate(
        old, secrets.token_hex(8), secrets.token_urlsafe(32), now, body.overlap_s, body.expires_in_s
    )
    await audit.record(admin, AuditAction.KEY_ROTATED, old.id, tenant=old.tenant, replaced_by=new.id)
    await gateway.stores.tenants.keys.add(new, ending)
    gateway.keys.drop(old.id)
    return key_of(new, token, replaces=old.id)


@router.get("/v1/keys", summary="List keys")
async def index(admin: AdminDep, gateway: GatewayDep) -> KeyList:
    return KeyList(data=[key_of(key) for key in await gateway.stores.tenants.keys.all()])


@router.delete("/v1/keys/{key_id}", responses=documented(400, 404, 409), summary="Revoke a key")
async def revoke(
    key_id: str,
    admin: AdminDep,
    gateway: GatewayDep,
    audit: AuditDep,
    in_use: Annotated[
        bool, Query(description="Needed for a key that the caller, or `turnout up` itself, works with.")
    ] = False,
) -> KeyDeleted:
    if (key := await gateway.stores.tenants.keys.find(key_id)) is None:
        raise no_such("key", key_id, "key_id")
    cut_off = in_use_by(key, {admin.id, admin.parent or ""})
    if cut_off is not None and not in_use:
        raise Conflict(cut_off, "in_use", "key_in_use")
    await audit.record(admin, AuditAction.KEY_REVOKED, key.id, tenant=key.tenant, role=key.role)
    if not await gateway.stores.tenants.keys.revoke(key_id):
        raise no_such("key", key_id, "key_id")
    await gateway.revocations.revoked(key_id)
    return KeyDeleted(id=key_id)
