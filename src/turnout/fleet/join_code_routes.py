"""Adding a machine: an admin makes a one-time code with the command that uses it; the machine that registers with the code gets
a worker key of its own, which ends with that worker."""

import secrets
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from turnout.errors import Unauthorized
from turnout.fleet.join_code_json import JoinCodeRequest, JoinCodeShown
from turnout.fleet.join_code_rules import is_join_code, join_command, key_by_code, new_join_code
from turnout.fleet.join_code_store import CodeUse
from turnout.fleet.worker_messages import Registration
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.store.address_rules import reachable_url
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep, AuditTrail
from turnout.tenants.auth import AdminDep, ShownKey, identify_worker_key
from turnout.tenants.caller import Caller, caller_with
from turnout.tenants.key_rules import is_login, secret_digest

router = APIRouter(tags=["workers"], responses=documented(401, 403, 500, 503))


@router.post(
    "/workers/join-codes",
    responses=documented(400, 413, 415),
    openapi_extra=json_body(JoinCodeRequest),
    summary="Make a code that lets one machine join",
)
async def create(request: Request, admin: AdminDep, gateway: GatewayDep, audit: AuditDep) -> JoinCodeShown:
    body = await read_json(request, JoinCodeRequest)
    url = reachable_url(gateway.settings.public_url, body.url, str(request.base_url))
    code = new_join_code(secrets.token_urlsafe(32))
    await audit.record(admin, AuditAction.JOIN_CODE_CREATED, _name_of(code))
    await gateway.stores.fleet.join_codes.put(code, admin.kept, body.expires_in_s)
    return JoinCodeShown(
        code=code,
        expires_at=int(gateway.now()) + body.expires_in_s,
        url=url,
        command=join_command(url, code),
    )


@dataclass(frozen=True, slots=True)
class JoinCode:
    """A code that is good so far: it is used up when the machine has proved itself."""

    code: str
    made_by: str


async def _joining(
    request: Request, gateway: GatewayDep, shown: Annotated[Caller | None, Depends(ShownKey())]
) -> Caller | JoinCode:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not is_join_code(token):
        return await identify_worker_key(request, gateway)
    made_by = await gateway.stores.fleet.join_codes.maker(token)
    # It ends with the key or the person that made it. Of an issuer's login that is nobody's here nothing is stored.
    if made_by is None or not (is_login(made_by) or await gateway.keys.is_valid(made_by)):
        raise _no_such_code()
    return JoinCode(token, made_by)


JoiningDep = Annotated[Caller | JoinCode, Depends(_joining)]


async def key_to_join_with(
    joining: Caller | JoinCode, body: Registration, gateway: Gateway, audit: AuditTrail
) -> tuple[Caller, str | None]:
    """The key that the worker is enrolled with, and its token if it was made here for a code."""
    if isinstance(joining, Caller):
        return joining, None
    used = await gateway.stores.fleet.join_codes.take(joining.code, body.probe_key)
    key, token = key_by_code(joining.code, body.probe_key, body.name, gateway.now())
    # Whoever did not hear the answer asks again. A key that is gone by then was revoked, or its worker evicted: it must not come back.
    if used is None or (used is CodeUse.AGAIN and await gateway.stores.tenants.keys.find(key.id) is None):
        raise _no_such_code()
    caller = caller_with(key)
    await audit.record(
        caller,
        AuditAction.KEY_CREATED,
        key.id,
        role=key.role,
        name=key.name,
        join_code=_name_of(joining.code),
    )
    await gateway.stores.tenants.keys.add(key)
    return caller, token


def _name_of(code: str) -> str:
    """How the audit log names it."""
    return secret_digest(code)[:12]


def _no_such_code() -> Unauthorized:
    return Unauthorized("The join code was used, is too old, or never was.", code="invalid_code")
