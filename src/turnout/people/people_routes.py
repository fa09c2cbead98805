"""People over HTTP, for admins: list, look, change, disable, remove. What a person has open ends with her."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from turnout.errors import Conflict, no_such
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.people.ending import end_open, erase
from turnout.people.person_json import (
    PersonChange,
    PersonDeleted,
    PersonList,
    PersonShown,
    matches_search,
    person_shown,
)
from turnout.people.person_rules import Person
from turnout.people.person_store import KnownPerson
from turnout.tasks.task_rules import PersonId
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep, AuditTrail
from turnout.tenants.auth import AdminDep
from turnout.tenants.caller import Caller

_AT_ONCE = 500

router = APIRouter(tags=["people"], responses=documented(401, 403, 500, 503))
PersonPath = Annotated[str, Path(pattern=r"^[pg]-[0-9a-f]{16}$")]


@router.get("/v1/people", responses=documented(400), summary="List people")
async def index(
    admin: AdminDep,
    gateway: GatewayDep,
    search: Annotated[str, Query(max_length=100, description="Part of a name, address, tenant or id.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[str | None, Query(pattern=r"^p-[0-9a-f]{16}$", description="A person's id.")] = None,
) -> PersonList:
    store, found = gateway.stores.tenants.people, list[KnownPerson]()
    last = None if before is None else PersonId(before)
    while len(found) <= limit:
        page = await store.page(last, _AT_ONCE)
        found += [known for known in page if matches_search(known.person, search)]
        if len(page) < _AT_ONCE:
            break
        last = page[-1].person.id
    return PersonList(
        data=[person_shown(known) for known in found[:limit]],
        has_more=len(found) > limit,
        guests=await store.guests(),
    )


@router.get("/v1/people/{person_id}", responses=documented(400, 404), summary="Look at a person")
async def show(person_id: PersonPath, admin: AdminDep, gateway: GatewayDep) -> PersonShown:
    return person_shown(await known_person(gateway, PersonId(person_id)))


@router.patch(
    "/v1/people/{person_id}",
    responses=documented(400, 404, 409, 413, 415),
    openapi_extra=json_body(PersonChange),
    summary="Change a person, disable her or let her back in",
)
async def change(
    person_id: PersonPath, request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep
) -> PersonShown:
    """New limits and another role count within seconds."""
    body = await read_json(request, PersonChange)
    person = (await known_person(gateway, PersonId(person_id))).person
    if admin.person == person.id and (body.disabled or body.role not in (None, person.role)):
        raise Conflict("You cannot disable yourself, or change your own role.", "person_id", "own_person")
    now = gateway.now()
    await _record(audit, admin, person, changed(person, body, now))
    after = await gateway.stores.tenants.people.change(person.id, lambda one: changed(one, body, now))
    if after is None:
        raise no_such("person", person_id, "person_id")
    gateway.keys.drop(person.id)
    if after.disabled_at is not None:
        await end_open(gateway, after)
    return person_shown(await known_person(gateway, person.id))


@router.delete("/v1/people/{person_id}", responses=documented(400, 404, 409), summary="Remove a person")
async def remove(
    person_id: PersonPath, admin: AdminDep, gateway: GatewayDep, audit: AuditDep
) -> PersonDeleted:
    """With her tasks, files, links, keys and sessions."""
    person = (await known_person(gateway, PersonId(person_id))).person
    if admin.person == person.id:
        raise Conflict("Remove yourself under your account.", "person_id", "own_person")
    await audit.record(admin, AuditAction.PERSON_REMOVED, person.id, tenant=person.tenant)
    await erase(gateway, person)
    return PersonDeleted(id=person.id)


async def known_person(gateway: Gateway, person_id: PersonId) -> KnownPerson:
    known = await gateway.stores.tenants.people.known(person_id)
    if known is None:
        raise no_such("person", person_id, "person_id")
    return known


def changed(person: Person, body: PersonChange, now: float) -> Person:
    expires_at = person.expires_at
    if body.expires_in_s is not None:
        expires_at = now + body.expires_in_s if body.expires_in_s else None
    disabled_at = person.disabled_at
    if body.disabled is not None:
        disabled_at = (disabled_at or now) if body.disabled else None
    return replace(
        person,
        name=person.name if body.name is None else body.name.strip(),
        email=person.email if body.email is None else body.email,
        role=person.role if body.role is None else body.role,
        limits=person.limits if body.limits is None else body.limits.limits(),
        expires_at=expires_at,
        disabled_at=disabled_at,
    )


async def _record(audit: AuditTrail, admin: Caller, before: Person, after: Person) -> None:
    if (before.disabled_at is None) != (after.disabled_at is None):
        action = AuditAction.PERSON_ENABLED if after.disabled_at is None else AuditAction.PERSON_DISABLED
        await audit.record(admin, action, before.id, tenant=before.tenant)
    if replace(before, disabled_at=after.disabled_at) != after:
        detail = {
            "role": after.role if after.role is not before.role else None,
            "videos_a_day": str(after.limits.videos) if after.limits != before.limits else None,
            "chats_a_day": str(after.limits.chats) if after.limits != before.limits else None,
        }
        told = {name: value for name, value in detail.items() if value is not None}
        await audit.record(admin, AuditAction.PERSON_CHANGED, before.id, tenant=before.tenant, **told)
