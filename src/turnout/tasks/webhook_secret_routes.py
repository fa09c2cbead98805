"""A tenant's own webhook secret: made and replaced by its own keys, or by an admin. It is shown once."""

import secrets

from fastapi import APIRouter, Request

from turnout.errors import Forbidden
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.tasks.task_rules import TenantId
from turnout.tasks.webhook_json import WebhookSecretRotation, WebhookSecretShown
from turnout.tasks.webhook_secret_rules import rotated, secret_of
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import UserDep
from turnout.tenants.caller import refuse_guest
from turnout.tenants.key_rules import Role

_SECRET_BYTES = 32

router = APIRouter(tags=["webhooks"], responses=documented(401, 403, 500, 503))


@router.post(
    "/v1/webhooks/secret",
    responses=documented(400, 409, 413, 415, 429),
    openapi_extra=json_body(WebhookSecretRotation),
    summary="Make or replace a tenant's webhook secret",
)
async def rotate_secret(
    request: Request, caller: UserDep, gateway: GatewayDep, audit: AuditDep
) -> WebhookSecretShown:
    """Webhooks are signed by the new secret from now on, and by the old one, too, until the overlap ends."""
    refuse_guest(caller)
    body = await read_json(request, WebhookSecretRotation)
    tenant = TenantId(body.tenant or caller.tenant)
    if tenant != caller.tenant and caller.role is not Role.ADMIN:
        raise Forbidden("Only an admin's key may do this for another tenant.", "tenant", "role_not_allowed")
    now, fresh = gateway.now(), secret_of(secrets.token_bytes(_SECRET_BYTES))
    await audit.record(caller, AuditAction.WEBHOOK_SECRET_ROTATED, tenant, overlap_s=str(body.overlap_s))
    made = await gateway.stores.webhook_secrets.change(
        tenant, lambda before: rotated(before, fresh, now, body.overlap_s)
    )
    return WebhookSecretShown(
        tenant=tenant, secret=made.current, created_at=int(now), old_until=int(now) + body.overlap_s
    )
