"""Coming in as a guest: without an account, where the operator allows it."""

import secrets

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnout.errors import NotFound
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.people.guest_rules import guest, network_account
from turnout.people.login_json import GuestLogin
from turnout.people.person_rules import as_key
from turnout.relay.connection_counts import group_of
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.session_cookie import refuse_other_origins
from turnout.tenants.session_json import SessionShown
from turnout.tenants.session_opening import SessionTerms, open_session

router = APIRouter(tags=["login"], responses=documented(500, 503))


@router.post(
    "/v1/login/guest",
    responses=documented(400, 403, 404, 413, 415, 429),
    openapi_extra=json_body(GuestLogin),
    summary="Come in as a guest",
)
async def log_in(request: Request, response: Response, gateway: GatewayDep, audit: AuditDep) -> SessionShown:
    """Makes a guest. The answer sets her session's cookie, which lasts as long as she may stay."""
    refuse_other_origins(request.method, request.headers.raw)
    body = await read_json(request, GuestLogin)
    settings = gateway.people.guests
    if settings is None:
        raise NotFound("Guests are not let in here.", code="no_guests")
    terms = gateway.people.site.accepted(body.terms)
    network = group_of(request.client.host if request.client else "")
    came = guest(settings, secrets.token_hex(8), network, gateway.now(), terms)
    await gateway.stores.tenants.people.add_guest(
        came, settings.most, (network_account(network), settings.address_guests)
    )
    length = SessionTerms(settings.stays_s)
    return await open_session(request, response, gateway, audit, as_key(came), length)
