"""What the configured OpenID Connect issuer says: verifies its JWTs with the keys that it publishes, and knows its endpoints.

The issuer's keys are fetched when they are first needed, when they are old, and when a token names an unknown one; never
more often than once in `_RETRY_S`. While the issuer is away, the keys that are known stay in use for `_KEEP_S`. Nothing of
a token is logged.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from turnout.errors import InvalidRequest, Misconfigured, Unauthorized, Unavailable
from turnout.extras import OIDC
from turnout.store.address_rules import is_safe_issuer_url
from turnout.store.outbound import Outbound
from turnout.telemetry.log import get_log
from turnout.tenants.claim_rules import no_tenant, role_of, tenant_of
from turnout.tenants.key_rules import Key, login_key
from turnout.tenants.tenant_settings import OidcSettings
from turnout.tenants.turn_rules import turn_of_other

if TYPE_CHECKING:
    from jwt import PyJWK

log = get_log()

_ALGORITHMS = ("RS256", "ES256", "EdDSA")
_LEEWAY_S = 10.0  # by which clocks may differ
_RETRY_S = 10.0
_FRESH_S = 600.0  # a key that the issuer withdrew works at most this much longer
_KEEP_S = 86_400.0
_MAX_BYTES = 256 * 1024
_MAX_KEYS = 64
_MAX_TOKEN_CHARS = 16 * 1024
_CLAIMS = ["exp", "iat", "iss", "aud", "sub"]
_MAX_SUBJECT_CHARS = 255  # by the standard


@dataclass(frozen=True, slots=True)
class IssuerEndpoints:
    """Where a browser is sent, and where its code is exchanged, by which of the ways in which clients show who they are.
    `names_itself`: what a browser brings back says which issuer sent it (RFC 9207)."""

    authorization: str
    token: str
    auth_methods: tuple[str, ...]
    names_itself: bool


class _BadAnswer(ValueError):
    """The issuer did not answer as it should."""


class OidcLogins:
    """`now` is for the age of the issuer's keys; tokens are judged by the real time."""

    def __init__(self, settings: OidcSettings, fetcher: Outbound, now: Callable[[], float]) -> None:
        try:
            import cryptography  # noqa: F401  # pyright: ignore[reportUnusedImport]
            import jwt
        except ImportError as err:
            raise Misconfigured(f"oidc needs PyJWT and cryptography: {OIDC}") from err
        self._jwt = jwt
        self._settings = settings
        self._fetcher = fetcher
        self._now = now
        self._keys: Mapping[str, PyJWK] = {}
        self._endpoints: IssuerEndpoints | None = None
        self._fetched_at = self._tried_at = -float("inf")
        self._fetching: asyncio.Task[None] | None = None

    @property
    def issuer(self) -> str:
        return self._settings.issuer

    async def verify(self, token: str) -> Key:
        """The token as a key; its name is the subject. Raises Unauthorized; Forbidden where it names no tenant or role of ours;
        Unavailable while the issuer's keys are not known."""
        claims = await self.claims(token, self._settings.audience)
        tenant = tenant_of(self._settings, claims)
        if tenant is None:
            raise no_tenant()
        return login_key(
            token,
            tenant,
            role_of(self._settings, claims),
            str(claims["sub"]),
            claims["iat"],
            claims["exp"] + _LEEWAY_S,
        )

    async def claims(self, token: str, audience: str) -> Mapping[str, Any]:
        """What a token for this audience says. Raises Unauthorized, and Unavailable."""
        jwt = self._jwt
        if len(token) > _MAX_TOKEN_CHARS:
            raise _invalid()
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in _ALGORITHMS:
                raise _invalid()
            key = await self._key(header.get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=audience,
                issuer=self._settings.issuer,
                leeway=_LEEWAY_S,
                options={"require": _CLAIMS, "enforce_minimum_key_length": True},
            )
            if len(str(claims["sub"])) > _MAX_SUBJECT_CHARS:
                raise _invalid()
            return claims | {"iat": float(claims["iat"]), "exp": float(claims["exp"])}
        except jwt.ExpiredSignatureError:
            raise Unauthorized("The token has expired.", code="expired_token") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
            raise _invalid() from None  # the cause may have pieces of the token

    async def endpoints(self) -> IssuerEndpoints:
        """Where people log in. Raises Unavailable while that is not known, or where the issuer has no such place."""
        if self._endpoints is None or self._now() - self._fetched_at >= _FRESH_S:
            fetching = self._start_fetching()
            if fetching is not None and self._endpoints is None:
                await asyncio.shield(fetching)
        if self._endpoints is None:
            raise Unavailable("The issuer cannot be asked now.", code="issuer_unavailable")
        return self._endpoints

    async def _key(self, kid: object) -> "PyJWK":
        if not isinstance(kid, str):
            raise _invalid()
        if kid not in self._keys or self._now() - self._fetched_at >= _FRESH_S:
            fetching = self._start_fetching()
            if fetching is not None and kid not in self._keys:
                await asyncio.shield(fetching)
        if not self._keys:
            raise Unavailable("The issuer's keys are not known yet.", code="issuer_unavailable")
        if kid not in self._keys:
            raise _invalid()
        return self._keys[kid]

    def _start_fetching(self) -> asyncio.Task[None] | None:
        """A task of its own: callers that give up must not end it, or they could keep it from ever succeeding."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        if self._now() - self._tried_at < _RETRY_S:
            return None
        self._tried_at = self._now()
        self._fetching = asyncio.create_task(self._renew(), name="issuer's keys")
        return self._fetching

    async def _renew(self) -> None:
        try:
            self._keys, self._endpoints = await self._fetch()
            self._fetched_at = self._now()
        except (InvalidRequest, ValueError, RecursionError) as err:
            problem = str(err).partition("\n")[0][:200]
            log.warning("issuer's keys were not fetched", issuer=self._settings.issuer, problem=problem)
            if self._now() - self._fetched_at >= _KEEP_S:
                self._keys, self._endpoints = {}, None

    async def _fetch(self) -> "tuple[Mapping[str, PyJWK], IssuerEndpoints | None]":
        issuer = self._settings.issuer
        found = await self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise _BadAnswer("the issuer's discovery document is another issuer's")
        jwks_uri = self._safe_url(found, "jwks_uri")
        if jwks_uri is None:
            raise _BadAnswer("jwks_uri is not an https URL")
        listed = (await self._get(jwks_uri)).get("keys")
        if not isinstance(listed, list):
            raise _BadAnswer("the issuer's answer has no keys")
        keys: dict[str, PyJWK] = {}
        for jwk in cast("list[object]", listed)[:_MAX_KEYS]:
            if isinstance(jwk, dict):
                self._add(cast("dict[str, Any]", jwk), keys)
        return keys, self._endpoints_in(found)

    def _endpoints_in(self, found: Mapping[str, Any]) -> IssuerEndpoints | None:
        authorization = self._safe_url(found, "authorization_endpoint")
        token = self._safe_url(found, "token_endpoint")
        if authorization is None or token is None:
            return None
        listed = found.get("token_endpoint_auth_methods_supported")
        methods = cast("list[object]", listed) if isinstance(listed, list) else ["client_secret_basic"]
        names_itself = found.get("authorization_response_iss_parameter_supported") is True
        return IssuerEndpoints(
            authorization, token, tuple(m for m in methods if isinstance(m, str)), names_itself
        )

    def _safe_url(self, found: Mapping[str, Any], name: str) -> str | None:
        """Nobody can change on the way what is said there. Plain http is for an issuer on this machine alone."""
        url = found.get(name)
        if not isinstance(url, str) or not is_safe_issuer_url(url.partition("?")[0]):
            return None
        return None if url.startswith("http:") and not self._settings.issuer.startswith("http:") else url

    def _add(self, jwk: dict[str, Any], keys: "dict[str, PyJWK]") -> None:
        """Keys for encryption, of other algorithms and malformed ones are left out."""
        kid = jwk.get("kid")
        if not isinstance(kid, str) or jwk.get("use", "sig") != "sig" or jwk.get("kty") == "oct":
            return
        try:
            key = self._jwt.PyJWK(jwk)
        except (self._jwt.PyJWTError, ValueError, TypeError):
            return
        if key.algorithm_name in _ALGORITHMS:
            keys[kid] = key

    async def _get(self, url: str) -> Mapping[str, Any]:
        answer: object = json.loads(
            await self._fetcher.get(url, _MAX_BYTES, whose=turn_of_other(self._settings.issuer))
        )
        if not isinstance(answer, dict):
            raise _BadAnswer("the issuer's answer is no JSON object")
        return cast("dict[str, Any]", answer)


def _invalid() -> Unauthorized:
    return Unauthorized("The token is not valid.", code="invalid_token")
