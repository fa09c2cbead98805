"""Invites over HTTP: admins make, list and revoke them; whoever has the link comes in.

The secret stands in the fragment of the link, which no server and no log sees, and comes in the body of a request of our own page.
"""

import secrets
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnout.errors import InvalidRequest, Unauthorized, no_such
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.people.invite_json import (
    InviteDeleted,
    InviteList,
    InviteLogin,
    InviteLook,
    InviteRequest,
    InviteSeen,
    InviteShown,
    invite_shown,
)
from turnout.people.invite_rules import Invite, invited, new_invite, split_invite
from turnout.people.people_routes import known_person
from turnout.people.person_rules import Person, as_key
from turnout.store.address_rules import reachable_url
from turnout.tasks.task_rules import PersonId
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import AdminDep
from turnout.tenants.caller import caller_with, refuse_persons_key
from turnout.tenants.key_rules import REMEMBERED_S, SESSION_S, person_of
from turnout.tenants.session_cookie import refuse_other_origins
from turnout.tenants.session_json import SessionShown
from turnout.tenants.session_opening import SessionTerms, open_session

router = APIRouter(tags=["people"], responses=documented(401, 403, 500, 503))


@router.post(
    "/v1/invites",
    responses=documented(400, 404, 413, 415),
    openapi_extra=json_body(InviteRequest),
    summary="Make an invite",
)
async def create(request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> InviteShown:
    """Whoever has the link may come in. It is shown once."""
    body = await read_json(request, InviteRequest)
    refuse_persons_key(admin)
    person = None if body.person is None else (await known_person(gateway, PersonId(body.person))).person
    invite, token = new_invite(
        f"i-{secrets.token_hex(6)}",
        secrets.token_urlsafe(32),
        gateway.now(),
        body.expires_in_s,
        admin.root,
    )
    invite = replace(
        invite,
        uses=1 if person else body.uses,
        tenant=person.tenant if person else body.tenant,
        role=person.role if person else body.role,
        limits=body.limits.limits(),
        stays_s=body.stays_s,
        note=body.note,
        person=person.id if person else None,
    )
    detail = {
        "tenant": invite.tenant,
        "role": invite.role,
        "uses": str(invite.uses),
        "whom": invite.person or "",
    }
    await audit.record(admin, AuditAction.INVITE_CREATED, invite.id, **detail)
    await gateway.stores.tenants.invites.add(invite)
    base = reachable_url(gateway.settings.public_url, str(request.base_url))
    return invite_shown(invite, 0, token, f"{base}/#invite={token}")


@router.get("/v1/invites", summary="List invites")
async def index(admin: AdminDep, gateway: GatewayDep) -> InviteList:
    found = await gateway.stores.tenants.invites.all(gateway.now())
    return InviteList(data=[invite_shown(invite, used) for invite, used in found])


@router.delete("/v1/invites/{invite_id}", responses=documented(404), summary="Revoke an invite")
async def revoke(invite_id: str, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> InviteDeleted:
    """Those who came by it stay."""
    if await gateway.stores.tenants.invites.find(invite_id) is None:
        raise no_such("invite", invite_id, "invite_id")
    await audit.record(admin, AuditAction.INVITE_REVOKED, invite_id)
    if not await gateway.stores.tenants.invites.remove(invite_id):
        raise no_such("invite", invite_id, "invite_id")
    return InviteDeleted(id=invite_id)


@router.post(
    "/v1/login/invite/look",
    responses=documented(400, 413, 415, 429),
    openapi_extra=json_body(InviteLook),
    summary="What an invite is for",
)
async def look(request: Request, gateway: GatewayDep) -> InviteSeen:
    refuse_other_origins(request.method, request.headers.raw)
    invite, person = await _opened(gateway, (await read_json(request, InviteLook)).invite)
    return InviteSeen(
        name=None if person is None else person.name,
        role=invite.role if person is None else person.role,
        expires_at=int(invite.expires_at),
    )


@router.post(
    "/v1/login/invite",
    responses=documented(400, 413, 415, 429),
    openapi_extra=json_body(InviteLogin),
    summary="Come in by an invite",
)
async def log_in(request: Request, response: Response, gateway: GatewayDep, audit: AuditDep) -> SessionShown:
    """Makes a person, or brings one back. The answer sets her session's cookie."""
    refuse_other_origins(request.method, request.headers.raw)
    body = await read_json(request, InviteLogin)
    invite, person = await _opened(gateway, body.invite)
    now, newcomer = gateway.now(), None
    terms = gateway.people.site.accepted(body.terms)
    if person is None:
        if body.name is None:
            raise InvalidRequest("Say your name.", "name", "missing_name")
        person_id = PersonId(f"p-{secrets.token_hex(8)}")
        newcomer = invited(invite, person_id, body.name.strip(), body.email, now)
        newcomer = person = replace(newcomer, terms=terms)
        detail = {"tenant": person.tenant, "role": person.role, "invite": invite.id, "terms": terms}
        await audit.record(caller_with(as_key(person)), AuditAction.PERSON_JOINED, person.id, **detail)
    if not await gateway.stores.tenants.invites.redeem(invite, newcomer, now):
        raise _no_such_invite()
    if person.terms != terms:
        await gateway.stores.tenants.people.change(person.id, lambda one: replace(one, terms=terms))
    length = SessionTerms(REMEMBERED_S if body.remember else SESSION_S, stays=body.remember)
    return await open_session(request, response, gateway, audit, as_key(person), length)


async def _opened(gateway: Gateway, token: str) -> tuple[Invite, Person | None]:
    """The invite, and the person whom it brings back. Wrong, over, used up, and made by somebody who is gone: all look alike."""
    parts = split_invite(token)
    found = await gateway.stores.tenants.invites.find(parts[0]) if parts else None
    if parts is None or found is None:
        raise _no_such_invite()
    invite, used = found
    if not invite.opens(parts[1], gateway.now()) or used >= invite.uses:
        raise _no_such_invite()
    # What a key made lasts longer than the key: keys are rotated.
    if person_of(invite.made_by) is not None and not await gateway.keys.is_valid(invite.made_by):
        raise _no_such_invite()
    if invite.person is None:
        return invite, None
    person = await gateway.stores.tenants.people.find(invite.person)
    if person is None or as_key(person).expired(gateway.now()):
        raise _no_such_invite()
    return invite, person


def _no_such_invite() -> Unauthorized:
    return Unauthorized("The invite was used, is too old, or never was.", "invite", "invalid_invite")
