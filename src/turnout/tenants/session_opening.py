"""Opens a session of the page: for a key, or for a person, however they were recognised."""

import secrets
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from turnout.gateway.gateway import Gateway
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditTrail
from turnout.tenants.caller import caller_with
from turnout.tenants.key_rules import SESSION_S, Key, mint_session
from turnout.tenants.session_cookie import set_cookie
from turnout.tenants.session_json import SessionShown, session_of
from turnout.tenants.session_store import OpenedBy

_MAX_AGENT_CHARS = 200


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """`ttl_s` is how long it works; without `stays` the browser forgets it when it is closed."""

    ttl_s: int = SESSION_S
    stays: bool = True


async def open_session(
    request: Request,
    response: Response,
    gateway: Gateway,
    audit: AuditTrail,
    parent: Key,
    terms: SessionTerms,
    *,
    secure: bool | None = None,
) -> SessionShown:
    """A new one each time, whatever the browser had before: the response gives it the cookie. `secure`: the page is reached by
    https; None asks the browser."""
    session, token = mint_session(
        secrets.token_hex(8), secrets.token_urlsafe(32), parent, gateway.now(), terms.ttl_s
    )
    caller = caller_with(session)
    await audit.record(caller_with(parent), AuditAction.SESSION_OPENED, session.id, tenant=parent.tenant)
    by = OpenedBy(
        request.headers.get("user-agent", "")[:_MAX_AGENT_CHARS],
        request.client.host if request.client else "",
    )
    await gateway.stores.tenants.sessions.open(session, parent.id, terms.ttl_s, by, caller.root)
    if caller.person is not None:
        await gateway.stores.tenants.people.note_seen(caller.person, gateway.now())
    # What the browser says of its own address counts: TLS may end before us.
    by_https = request.headers.get("origin", "").startswith("https://") if secure is None else secure
    cookie = set_cookie(token, terms.ttl_s if terms.stays else None, by_https)
    response.headers.append("Set-Cookie", cookie)
    return session_of(caller)


def close_session(response: Response) -> None:
    """The browser forgets it, however it was given."""
    for secure in (False, True):
        response.headers.append("Set-Cookie", set_cookie("", 0, secure))
