"""Logging in to the page by a one-time code, and out again. The session is a key in a cookie that scripts cannot read."""

import secrets

from fastapi import APIRouter, Request
from starlette.responses import Response

from turnout.errors import Forbidden, Unauthorized
from turnout.gateway.bodies import json_body, read_json
from turnout.gateway.gateway import GatewayDep
from turnout.gateway.problems import documented
from turnout.telemetry.log import get_log
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep
from turnout.tenants.auth import AdminDep, MaybeUserDep
from turnout.tenants.caller import caller_with
from turnout.tenants.key_rules import CODE_S, is_login, is_session, mint_session, secret_digest
from turnout.tenants.session_cookie import refuse_other_origins, set_cookie
from turnout.tenants.session_json import CodeShown, LoginCode, SessionShown, session_of

_SESSION_S = 12 * 3600

router = APIRouter(tags=["session"], responses=documented(403, 500, 503))


@router.post("/v1/session/codes", responses=documented(401), summary="Make a code that logs a browser in")
async def make_code(admin: AdminDep, gateway: GatewayDep) -> CodeShown:
    """The session may do what the caller's key may, and ends when that is revoked."""
    if is_login(admin.id):  # no gateway could look its key up
        raise Forbidden(
            "A session needs an API key: a login of the issuer cannot make one.", code="key_needed"
        )
    code = secrets.token_urlsafe(32)
    await gateway.stores.tenants.sessions.put_code(secret_digest(code), admin.id, CODE_S)
    return CodeShown(code=code, expires_at=int(gateway.now()) + CODE_S)


@router.post(
    "/v1/session",
    responses=documented(400, 401, 413, 415, 429),
    openapi_extra=json_body(LoginCode),
    summary="Log in by a code",
)
async def log_in(request: Request, response: Response, gateway: GatewayDep, audit: AuditDep) -> SessionShown:
    """The answer sets the session's cookie."""
    refuse_other_origins(request.method, request.headers.raw)
    body = await read_json(request, LoginCode)
    key_id = await gateway.stores.tenants.sessions.take_code(secret_digest(body.code))
    parent = await gateway.stores.tenants.keys.find(key_id) if key_id else None
    if parent is None or parent.expired(gateway.now()):
        raise Unauthorized("The code was used, is too old, or never was.", "code", "invalid_code")
    session_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    session, token = mint_session(session_id, secret, parent, gateway.now(), _SESSION_S)
    await audit.record(caller_with(parent), AuditAction.SESSION_OPENED, session.id, tenant=parent.tenant)
    await gateway.stores.tenants.sessions.open(session, parent.id, _SESSION_S)
    # What the browser says of its own address counts: TLS may end before us.
    secure = request.headers.get("origin", "").startswith("https://")
    response.headers["Set-Cookie"] = set_cookie(token, _SESSION_S, secure)
    return session_of(caller_with(session))


@router.get(
    "/v1/session",
    response_model=SessionShown,
    responses={204: {"description": "Nobody is logged in."}, **documented(401)},
    summary="Who is logged in",
)
async def show(caller: MaybeUserDep) -> SessionShown | Response:
    # 401 would be an error in the browser's console, and that nobody is logged in is none.
    return Response(status_code=204) if caller is None else session_of(caller)


@router.delete(
    "/v1/session", status_code=204, response_class=Response, responses=documented(401), summary="Log out"
)
async def log_out(caller: MaybeUserDep, gateway: GatewayDep) -> Response:
    """Ends the session at every gateway. May be repeated."""
    if caller is not None and is_session(caller.id):
        await gateway.stores.tenants.sessions.end(caller.id)
        gateway.keys.drop(caller.id)
        get_log().info("session ended", session=caller.id)
    response = Response(status_code=204)
    for secure in (False, True):
        response.headers.append("Set-Cookie", set_cookie("", 0, secure))
    return response
