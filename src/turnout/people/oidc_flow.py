"""Logging in on the page by the OpenID Connect issuer: authorization code with PKCE.

`depart` makes up a state, a nonce and a verifier, keeps them for minutes, and says where the browser goes. `arrive` takes what the
browser brings back: once, from the browser that departed, for the issuer that it was sent to. Messages are made by Authlib, sent
by our own guarded calls, and the token is verified as bearer tokens are. Nothing of a code or token is logged.
"""

import hmac
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from turnout.errors import InvalidRequest, Limited, Misconfigured, Unauthorized, Unavailable
from turnout.extras import OIDC
from turnout.people.login_flow_store import LoginFlow, LoginFlowStore
from turnout.store.outbound import Outbound
from turnout.tenants.address_counts import AddressCounts
from turnout.tenants.key_rules import secret_digest
from turnout.tenants.oidc import IssuerEndpoints, OidcLogins
from turnout.tenants.tenant_settings import OidcSettings
from turnout.tenants.turn_rules import turn_of_other

CALLBACK = "/v1/login/oidc/callback"
_MOST_DEPARTURES = 300  # from one address in a minute
_MAX_BYTES = 256 * 1024
_HEADERS = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Departure:
    """Where the browser goes, and the secret that it keeps in a cookie meanwhile."""

    url: str
    browser: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a browser brings back in its query, and its cookie."""

    state: str
    code: str
    issuer: str | None
    error: str | None
    browser: str | None


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """What the issuer says of whoever logged in, and the terms of use that she accepted."""

    claims: Mapping[str, Any]
    terms: str


class OidcFlow:
    """`public_url` is where browsers reach this service; the issuer knows the callback below it. `issuer` is called by `outbound`."""

    def __init__(
        self,
        settings: OidcSettings,
        secret: str | None,
        issuer: OidcLogins,
        outbound: Outbound,
        flows: LoginFlowStore,
        public_url: str | None,
    ) -> None:
        try:
            from authlib.oauth2 import rfc7636
            from authlib.oauth2.auth import ClientAuth
            from authlib.oauth2.rfc6749 import parameters
        except ImportError as err:
            raise Misconfigured(f"oidc needs Authlib: {OIDC}") from err
        if public_url is None or settings.client_id is None:
            raise Misconfigured("oidc.client_id needs public_url: the issuer sends browsers back there")
        self._parameters = cast("Any", parameters)
        self._challenge = cast("Any", rfc7636).create_s256_code_challenge
        self._client_auth = cast("Any", ClientAuth)
        self.settings = settings
        self._client_id = settings.client_id
        self._secret = secret
        self.issuer = issuer
        self._outbound = outbound
        self._flows = flows
        self._departures = AddressCounts(time.monotonic)
        self.public_url = public_url.rstrip("/")

    @property
    def secure(self) -> bool:
        return self.public_url.startswith("https://")

    async def depart(self, address: str, terms: str = "") -> Departure:
        """Raises Unavailable while the issuer cannot be asked, and Limited. `terms` are what the person accepted."""
        counted = self._departures.add(address)
        if (
            counted is not None and counted[1] >= _MOST_DEPARTURES
        ):  # anybody may begin one, and each is stored
            raise Limited(
                "Too many logins begin at this address.", code="too_many_logins", retry_after_s=counted[2]
            )
        endpoints = await self.issuer.endpoints()
        state, nonce, browser = (secrets.token_urlsafe(32) for _ in range(3))
        verifier = secrets.token_urlsafe(48)
        await self._flows.put(state, LoginFlow(nonce, verifier, secret_digest(browser), terms))
        url: str = self._parameters.prepare_grant_uri(
            endpoints.authorization,
            self._client_id,
            "code",
            redirect_uri=self.public_url + CALLBACK,
            scope=self.settings.scopes,
            state=state,
            nonce=nonce,
            code_challenge=self._challenge(verifier),
            code_challenge_method="S256",
        )
        return Departure(url, browser)

    async def arrive(self, arrival: Arrival) -> LoggedIn:
        """Whoever logged in. Raises Unauthorized: `login_stale` for what this browser did not begin
        minutes ago, or has used; `login_denied` where the person or the issuer said no; `login_failed` for all else."""
        flow = await self._flows.take(arrival.state)
        if flow is None or not hmac.compare_digest(flow.browser, secret_digest(arrival.browser or "")):
            raise Unauthorized("The login was begun elsewhere, too long ago, or is used.", code="login_stale")
        endpoints = await self.issuer.endpoints()
        # Another issuer's answer in place of ours (mix-up): RFC 9207.
        if arrival.issuer != self.issuer.issuer and (arrival.issuer is not None or endpoints.names_itself):
            raise _failed()
        if arrival.error is not None:
            raise Unauthorized("The issuer did not log you in.", code="login_denied")
        token = await self._exchange(endpoints, arrival.code, flow.verifier)
        try:
            claims = await self.issuer.claims(token, self._client_id)
        except Unauthorized as err:
            raise _failed() from err
        nonce, for_whom = claims.get("nonce"), claims.get("azp", self._client_id)
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce, flow.nonce):
            raise _failed()
        if for_whom != self._client_id:
            raise _failed()
        return LoggedIn(claims, flow.terms)

    async def _exchange(self, endpoints: IssuerEndpoints, code: str, verifier: str) -> str:
        """The token for a code."""
        if not code:
            raise _failed()
        body: str = self._parameters.prepare_token_request(
            "authorization_code",
            redirect_uri=self.public_url + CALLBACK,
            code=code,
            code_verifier=verifier,
        )
        auth = self._client_auth(self._client_id, self._secret, self._auth_method(endpoints))
        uri, headers, body = auth.prepare("POST", endpoints.token, dict(_HEADERS), body)
        try:
            found: object = json.loads(
                await self._outbound.post_for(
                    uri, headers, body.encode(), _MAX_BYTES, whose=turn_of_other(self.issuer.issuer)
                )
            )
        except (InvalidRequest, ValueError, RecursionError):
            raise _failed() from None
        token = cast("dict[str, object]", found).get("id_token") if isinstance(found, dict) else None
        if not isinstance(token, str):
            raise _failed()
        return token

    def _auth_method(self, endpoints: IssuerEndpoints) -> str:
        if self._secret is None:
            return "none"
        known = endpoints.auth_methods
        by_post = "client_secret_post" in known and "client_secret_basic" not in known
        return "client_secret_post" if by_post else "client_secret_basic"


def _failed() -> Unauthorized:
    return Unauthorized("The issuer's answer cannot be believed.", code="login_failed")


def reason_of(err: Exception) -> str:
    """Why nobody was logged in, as the page is told it."""
    code = getattr(err, "code", None)
    known = {"login_stale": "stale", "login_denied": "denied", "login_refused": "refused"}
    known |= {"no_tenant": "refused", "role_not_allowed": "refused", "terms_needed": "terms"}
    return "away" if isinstance(err, Unavailable | Limited) else known.get(str(code), "failed")
