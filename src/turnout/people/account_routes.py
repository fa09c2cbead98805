"""My account over HTTP: who I am, what I may ask for, and my keys; all of it as a file, and gone.

Whoever comes with a key that is no person's has no keys of its own. Keys are for programs: what gives others a way in, or takes
all away, needs a session."""

import secrets
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from turnout.errors import Conflict, Forbidden, InvalidRequest, no_such
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.people.account_json import AccountChange, AccountShown, OwnKeyRequest, TodayShown
from turnout.people.archive import archive
from turnout.people.ending import erase
from turnout.people.person_json import PersonDeleted, person_shown
from turnout.people.person_rules import Person, as_key
from turnout.people.person_store import MAX_KEYS, KnownPerson
from turnout.tenants.allowance_rules import Counted, limits_on
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import UserDep
from turnout.tenants.caller import Caller, needs_session, refuse_guest
from turnout.tenants.key_json import KeyDeleted, KeyList, KeyShown, key_of
from turnout.tenants.key_rules import Role, mint, person_of, with_parent
from turnout.tenants.session_opening import close_session

router = APIRouter(tags=["account"], responses=documented(401, 403, 500, 503))


@router.get("/v1/account", summary="Who I am, and what I may ask for today")
async def show(caller: UserDep, gateway: GatewayDep) -> AccountShown:
    known = await _known(caller, gateway)
    return await _shown(caller, gateway, known)


@router.patch(
    "/v1/account",
    responses=documented(400, 413, 415),
    openapi_extra=json_body(AccountChange),
    summary="Change my name or address",
)
async def change(request: Request, caller: UserDep, gateway: GatewayDep) -> AccountShown:
    body, known = await read_json(request, AccountChange), _a_person(await _known(caller, gateway))

    def renamed(person: Person) -> Person:
        name = person.name if body.name is None else body.name.strip()
        return replace(person, name=name, email=person.email if body.email is None else body.email)

    person = await gateway.stores.tenants.people.change(known.person.id, renamed)
    gateway.keys.drop(known.person.id)
    after = None if person is None else KnownPerson(person, known.seen_at)
    return await _shown(caller, gateway, after)


@router.get(
    "/v1/account/export",
    response_class=Response,
    responses={200: {"description": "A zip file.", "content": {"application/zip": {}}}},
    summary="Everything of mine as a file",
)
async def export(caller: UserDep, gateway: GatewayDep) -> StreamingResponse:
    """What is known of me, my conversations, and all my videos with their files."""
    known = _a_person(await _known(caller, gateway))
    headers = {"Content-Disposition": f'attachment; filename="turnout-{known.person.id}.zip"'}
    return StreamingResponse(archive(gateway, known), media_type="application/zip", headers=headers)


@router.delete("/v1/account", responses=documented(400), summary="Delete everything of mine")
async def delete(
    response: Response,
    caller: UserDep,
    gateway: GatewayDep,
    audit: AuditDep,
    everything: Annotated[bool, Query(description="Must be true: nothing brings it back.")] = False,
) -> PersonDeleted:
    """My tasks, files, links, conversations, keys and sessions, and what is known of me."""
    person = _a_person(await _known(caller, gateway)).person
    needs_session(caller)
    if not everything:
        raise InvalidRequest(
            "Say everything=true: all your videos, keys and sessions are deleted for good.",
            "everything",
            "invalid_value",
        )
    await audit.record(caller, AuditAction.PERSON_REMOVED, person.id, tenant=person.tenant)
    await erase(gateway, person)
    close_session(response)
    return PersonDeleted(id=person.id)


@router.get("/v1/account/keys", summary="My keys")
async def keys(caller: UserDep, gateway: GatewayDep) -> KeyList:
    person = _a_person(await _known(caller, gateway)).person
    found = await gateway.stores.tenants.people.keys_of(person)
    return KeyList(data=[key_of(key) for key in found])


@router.post(
    "/v1/account/keys",
    responses=documented(400, 409, 413, 415, 429),
    openapi_extra=json_body(OwnKeyRequest),
    summary="Make a key of mine",
)
async def make_key(request: Request, caller: UserDep, gateway: GatewayDep, audit: AuditDep) -> KeyShown:
    """For a program: it may do what I may, or less, and ends with me. The token is shown once."""
    body, person = await read_json(request, OwnKeyRequest), _a_person(await _known(caller, gateway)).person
    needs_session(caller)
    refuse_guest(caller)
    if body.role is Role.ADMIN and caller.role is not Role.ADMIN:
        raise Forbidden("A key of yours cannot do more than you.", "role", "role_not_allowed")
    key, token = mint(
        f"{person.id}-{secrets.token_hex(4)}",
        secrets.token_urlsafe(32),
        person.tenant,
        body.role,
        body.name,
        gateway.now(),
        body.expires_in_s,
    )
    await audit.record(caller, AuditAction.KEY_CREATED, key.id, tenant=key.tenant, role=key.role)
    if not await gateway.stores.tenants.people.add_key(key):
        raise Conflict(f"You have {MAX_KEYS} keys: revoke one.", code="too_many_keys")
    return key_of(with_parent(key, as_key(person)), token)


@router.delete("/v1/account/keys/{key_id}", responses=documented(404), summary="Revoke a key of mine")
async def revoke_key(key_id: str, caller: UserDep, gateway: GatewayDep, audit: AuditDep) -> KeyDeleted:
    if caller.person is None or person_of(key_id) != caller.person or key_id == caller.person:
        raise no_such("key", key_id, "key_id")
    if await gateway.stores.tenants.keys.find(key_id) is None:
        raise no_such("key", key_id, "key_id")
    await audit.record(caller, AuditAction.KEY_REVOKED, key_id, tenant=caller.tenant)
    if not await gateway.stores.tenants.keys.revoke(key_id):
        raise no_such("key", key_id, "key_id")
    await gateway.revocations.revoked(key_id)
    return KeyDeleted(id=key_id)


async def _known(caller: Caller, gateway: Gateway) -> KnownPerson | None:
    return None if caller.person is None else await gateway.stores.tenants.people.known(caller.person)


def _a_person(known: KnownPerson | None) -> KnownPerson:
    if known is None:
        raise Forbidden("This is for people, and you came with a key that is nobody's.", code="person_needed")
    return known


async def _shown(caller: Caller, gateway: Gateway, known: KnownPerson | None) -> AccountShown:
    return AccountShown(
        tenant=caller.tenant,
        role=Role(caller.role),
        name=known.person.name if known else caller.name,
        person=person_shown(known) if known else None,
        videos_today=await _today(caller, gateway, "videos"),
        chats_today=await _today(caller, gateway, "chats"),
    )


async def _today(caller: Caller, gateway: Gateway, what: Counted) -> TodayShown | None:
    """As it is for the first of the caller's accounts: her own."""
    for account, most in limits_on(caller.allowances, what)[:1]:
        asked = await gateway.stores.tenants.allowances.asked(account, gateway.now())
        return TodayShown(asked=asked[what], most=most)
    return None
