"""Logging in to the page by a one-time code or a key, and out again; and all sessions of whoever asks. A session is a key of its own,
in a cookie that scripts cannot read: no other key stays in the page."""

import secrets

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnout.errors import Forbidden, InvalidRequest, Unauthorized, no_such
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.telemetry.log import get_log
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep, count_way_in
from turnout.tenants.auth import MaybeUserDep, UserDep
from turnout.tenants.caller import Caller, known, needs_session, require_user
from turnout.tenants.key_rules import (
    CODE_S,
    PERSONS_CODE_S,
    REMEMBERED_S,
    SESSION_S,
    Key,
    is_login,
    is_session,
    secret_digest,
)
from turnout.tenants.session_cookie import refuse_other_origins
from turnout.tenants.session_json import (
    CodeShown,
    LoginRequest,
    OwnSessionList,
    SessionsEnded,
    SessionShown,
    own_session_of,
    session_of,
)
from turnout.tenants.session_opening import SessionTerms, close_session, open_session

router = APIRouter(tags=["session"], responses=documented(403, 500, 503))
own_sessions = APIRouter(tags=["account"], responses=documented(401, 403, 500, 503))


@router.post(
    "/v1/session/codes", responses=documented(401, 429), summary="Make a code that logs a browser in"
)
async def make_code(caller: UserDep, gateway: GatewayDep) -> CodeShown:
    """The session may do what the caller may, and ends with the caller's key or person."""
    if is_login(caller.root):
        raise _key_needed()
    needs_session(caller)
    await count_way_in(gateway, caller)
    code = secrets.token_urlsafe(32)
    ttl_s = CODE_S if caller.person is None else PERSONS_CODE_S
    await gateway.stores.tenants.sessions.put_code(secret_digest(code), caller.root, ttl_s)
    return CodeShown(code=code, expires_at=int(gateway.now()) + ttl_s)


@router.post(
    "/v1/session",
    responses=documented(400, 401, 413, 415, 429),
    openapi_extra=json_body(LoginRequest),
    summary="Log in by a code or a key",
)
async def log_in(request: Request, response: Response, gateway: GatewayDep, audit: AuditDep) -> SessionShown:
    """The answer sets the session's cookie. The session may do what the key may, and ends with it."""
    refuse_other_origins(request.method, request.headers.raw)
    body = await read_json(request, LoginRequest)
    if (body.code is None) == (body.key is None):
        raise InvalidRequest("Give a code or a key.", "code", "invalid_value")
    if body.key is not None:
        parent = await _parent_by_key(request, gateway, body.key)
    else:
        parent = await _parent_by_code(gateway, body.code or "")
    terms = SessionTerms(
        ttl_s=REMEMBERED_S if body.remember else SESSION_S, stays=body.key is None or body.remember
    )
    return await open_session(request, response, gateway, audit, parent, terms)


async def _parent_by_code(gateway: Gateway, code: str) -> Key:
    key_id = await gateway.stores.tenants.sessions.take_code(secret_digest(code))
    parent = await gateway.stores.tenants.keys.find(key_id) if key_id else None
    if parent is None or parent.expired(gateway.now()):
        raise Unauthorized("The code was used, is too old, or never was.", "code", "invalid_code")
    return parent


async def _parent_by_key(request: Request, gateway: Gateway, token: str) -> Key:
    address = request.client.host if request.client else ""
    # Alone: a cookie that the browser still has must not decide anything.
    caller = known(await gateway.keys.identify("POST", f"Bearer {token}".encode(), (), address))
    require_user(caller)
    parent = None if is_login(caller.id) else await gateway.stores.tenants.keys.find(caller.id)
    if parent is None:
        raise _key_needed()
    return parent


def _key_needed() -> Forbidden:
    """No gateway could look up what a login of the issuer was."""
    return Forbidden("A session needs an API key: a login of the issuer cannot make one.", code="key_needed")


@router.get(
    "/v1/session",
    response_model=SessionShown,
    responses={204: {"description": "Nobody is logged in."}, **documented(401)},
    summary="Who is logged in",
)
async def show(caller: MaybeUserDep, gateway: GatewayDep) -> SessionShown | Response:
    if caller is None:
        # 401 would be an error in the browser's console, and that nobody is logged in is none.
        return Response(status_code=204)
    if caller.person is not None:
        await gateway.stores.tenants.people.note_seen(caller.person, gateway.now())
    return session_of(caller)


@router.delete(
    "/v1/session", status_code=204, response_class=Response, responses=documented(401), summary="Log out"
)
async def log_out(caller: MaybeUserDep, gateway: GatewayDep) -> Response:
    """Ends the session at every gateway. May be repeated."""
    if caller is not None and is_session(caller.id):
        await gateway.stores.tenants.sessions.end(caller.root, [caller.id])
        gateway.keys.drop(caller.id)
        get_log().info("session ended", session=caller.id)
    response = Response(status_code=204)
    close_session(response)
    return response


@own_sessions.get("/v1/account/sessions", summary="My sessions")
async def sessions(caller: UserDep, gateway: GatewayDep) -> OwnSessionList:
    found = await gateway.stores.tenants.sessions.of(caller.root)
    return OwnSessionList(data=[own_session_of(one, caller.id) for one in found])


@own_sessions.delete("/v1/account/sessions", summary="End all my other sessions")
async def end_others(caller: UserDep, gateway: GatewayDep, audit: AuditDep) -> SessionsEnded:
    found = [one.session.id for one in await gateway.stores.tenants.sessions.of(caller.root)]
    others = [session_id for session_id in found if session_id != caller.id]
    await _end(caller, gateway, audit, others)
    return SessionsEnded(ended=len(others))


@own_sessions.delete(
    "/v1/account/sessions/{session_id}", responses=documented(404), summary="End a session of mine"
)
async def end_one(session_id: str, caller: UserDep, gateway: GatewayDep, audit: AuditDep) -> SessionsEnded:
    found = [one.session.id for one in await gateway.stores.tenants.sessions.of(caller.root)]
    if session_id not in found:
        raise no_such("session", session_id, "session_id")
    await _end(caller, gateway, audit, [session_id])
    return SessionsEnded(ended=1)


async def _end(caller: Caller, gateway: Gateway, audit: AuditDep, session_ids: list[str]) -> None:
    if session_ids:
        await audit.record(
            caller, AuditAction.SESSIONS_ENDED, caller.root, tenant=caller.tenant, count=str(len(session_ids))
        )
    await gateway.stores.tenants.sessions.end(caller.root, session_ids)
    for session_id in session_ids:
        await gateway.revocations.revoked(session_id)
