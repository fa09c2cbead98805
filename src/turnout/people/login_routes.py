"""Logging in on the page by the OpenID Connect issuer. The browser is sent there and comes back with a code; whatever comes of it,
it ends up at our own page and nowhere else.

While it is away a cookie of minutes binds the login to this browser: what another one began is of no use here, and nobody can be
logged in as somebody else by a link."""

import secrets
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse

from turnout.errors import NotFound, TurnoutError, Unauthorized
from turnout.gateway.gateway import Gateway, GatewayDep
from turnout.gateway.problems import documented
from turnout.people.claimed_rules import claimed, renewed
from turnout.people.login_flow_store import FLOW_S
from turnout.people.login_json import GuestOffer, LoginButton, LoginWays
from turnout.people.oidc_flow import CALLBACK, Arrival, LoggedIn, OidcFlow, reason_of
from turnout.people.person_rules import Person, as_key
from turnout.tasks.task_rules import PersonId
from turnout.telemetry.log import get_log
from turnout.tenants.audit_rules import AuditAction
from turnout.tenants.audit_trail import AuditDep, AuditTrail
from turnout.tenants.caller import caller_with
from turnout.tenants.session_opening import SessionTerms, open_session

_COOKIES = ("__Host-turnout_login", "turnout_login")

router = APIRouter(tags=["login"], responses=documented(500, 503))

_Word = Annotated[str | None, Query(max_length=256)]
_Code = Annotated[str | None, Query(max_length=2048)]  # some issuers' are of more than a thousand letters


@router.get("/v1/login", summary="The ways in")
async def ways(gateway: GatewayDep) -> LoginWays:
    flow, guests = gateway.people.oidc, gateway.people.guests
    return LoginWays(
        oidc=None if flow is None else LoginButton(name=flow.settings.button),
        guests=None
        if guests is None
        else GuestOffer(videos=guests.videos, chats=guests.chats, stays_s=guests.stays_s),
    )


@router.get(
    "/v1/login/oidc",
    status_code=303,
    response_class=RedirectResponse,
    responses=documented(400, 404),
    summary="Log in by the issuer",
)
async def depart(request: Request, gateway: GatewayDep, terms: _Word = None) -> RedirectResponse:
    """`terms` are the terms of use that are accepted, where there are some."""
    flow, address = _flow(gateway), request.client.host if request.client else ""
    try:
        departure = await flow.depart(address, gateway.people.site.accepted(terms))
    except TurnoutError as err:
        return _back(flow, err)
    answer = RedirectResponse(departure.url, 303)
    answer.headers.append("Set-Cookie", _cookie(flow, departure.browser, FLOW_S))
    return answer


@router.get(
    CALLBACK,
    status_code=303,
    response_class=RedirectResponse,
    responses=documented(400, 404),
    summary="Where the issuer sends the browser back",
)
async def arrive(
    request: Request,
    gateway: GatewayDep,
    audit: AuditDep,
    state: _Word = None,
    code: _Code = None,
    iss: _Word = None,
    error: _Word = None,
) -> RedirectResponse:
    flow = _flow(gateway)
    browser = request.cookies.get(_COOKIES[not flow.secure])
    answer = RedirectResponse(f"{flow.public_url}/#/create", 303)
    try:
        logged_in = await flow.arrive(Arrival(state or "", code or "", iss, error, browser))
        person = await _person(gateway, audit, flow, logged_in)
        await open_session(
            request, answer, gateway, audit, as_key(person), SessionTerms(), secure=flow.secure
        )
    except TurnoutError as err:
        get_log().warning("login by the issuer failed", reason=err.code)
        return _back(flow, err)
    answer.headers.append("Set-Cookie", _cookie(flow, "", 0))
    return answer


async def _person(gateway: Gateway, audit: AuditTrail, flow: OidcFlow, logged_in: LoggedIn) -> Person:
    """Whoever the issuer says it is: found by its name for her, or new. Raises Forbidden, and Unauthorized for one who is kept
    out."""
    people, settings, now = gateway.stores.tenants.people, flow.settings, gateway.now()
    claims, terms = logged_in.claims, logged_in.terms
    person = await people.by_subject(settings.issuer, str(claims["sub"]))
    if person is None:
        person = claimed(settings, claims, PersonId(f"p-{secrets.token_hex(8)}"), now)
        detail = {"tenant": person.tenant, "role": person.role, "way": person.way, "terms": terms}
        await audit.record(caller_with(as_key(person)), AuditAction.PERSON_JOINED, person.id, **detail)
        person = await people.add(person)
    if as_key(person).expired(now):
        raise Unauthorized("You may not come in any more.", code="login_refused")
    after = await people.change(person.id, lambda one: replace(renewed(one, settings, claims), terms=terms))
    gateway.keys.drop(person.id)
    return after or person


def _flow(gateway: Gateway) -> OidcFlow:
    if gateway.people.oidc is None:
        raise NotFound("There is no login by an issuer here.", code="no_oidc")
    return gateway.people.oidc


def _back(flow: OidcFlow, err: TurnoutError) -> RedirectResponse:
    """To the page, which says it in words."""
    answer = RedirectResponse(f"{flow.public_url}/#login={reason_of(err)}", 303)
    answer.headers.append("Set-Cookie", _cookie(flow, "", 0))
    return answer


def _cookie(flow: OidcFlow, secret: str, max_age_s: int) -> str:
    """Lax: the issuer's page sends the browser here, and it must come along."""
    name, more = _COOKIES[not flow.secure], "; Secure" if flow.secure else ""
    return f"{name}={secret}; HttpOnly; SameSite=Lax; Path=/; Max-Age={max_age_s}{more}"
