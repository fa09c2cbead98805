"""Logins by OpenID Connect: verifies JWTs of the configured issuer with the keys that it publishes.

The issuer's keys are fetched when they are first needed, when they are old, and when a token names an unknown one; never
more often than once in `_RETRY_S`. While the issuer is away, the keys that are known stay in use for `_KEEP_S`. Nothing of
a token is logged.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from turnout.errors import Forbidden, InvalidRequest, Misconfigured, Unauthorized, Unavailable
from turnout.store.address_rules import is_safe_issuer_url
from turnout.store.outbound import Outbound
from turnout.tasks.task_rules import TenantId
from turnout.telemetry.log import get_log
from turnout.tenants.key_json import TENANT
from turnout.tenants.key_rules import Key, Role, login_key
from turnout.tenants.tenant_settings import OidcSettings

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
_STRENGTH = (Role.ADMIN, Role.USER, Role.METRICS)


class _BadAnswer(ValueError):
    """The issuer did not answer as it should."""


class OidcLogins:
    """The LoginVerifier of the product. `now` is for the age of the issuer's keys; tokens are judged by the real time."""

    def __init__(self, settings: OidcSettings, fetcher: Outbound, now: Callable[[], float]) -> None:
        try:
            import cryptography  # noqa: F401  # pyright: ignore[reportUnusedImport]
            import jwt
        except ImportError as err:
            raise Misconfigured("oidc needs PyJWT and cryptography: pip install 'turnout[oidc]'") from err
        self._jwt = jwt
        self._settings = settings
        self._fetcher = fetcher
        self._now = now
        self._keys: Mapping[str, PyJWK] = {}
        self._fetched_at = self._tried_at = -float("inf")
        self._fetching: asyncio.Task[None] | None = None

    async def verify(self, token: str) -> Key:
        """The token as a key. Raises Unauthorized; Forbidden where it names no tenant or role of ours; Unavailable while
        the issuer's keys are not known."""
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
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=_LEEWAY_S,
                options={"require": _CLAIMS, "enforce_minimum_key_length": True},
            )
            return self._as_key(token, claims)
        except jwt.ExpiredSignatureError:
            raise Unauthorized("The token has expired.", code="expired_token") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
            raise _invalid() from None  # the cause may have pieces of the token

    def _as_key(self, token: str, claims: Mapping[str, Any]) -> Key:
        tenant = _claim(claims, self._settings.tenant_claim)
        if not isinstance(tenant, str) or not re.fullmatch(TENANT, tenant):
            raise Forbidden("The token names no tenant that this service can have.", code="no_tenant")
        expires_at = float(claims["exp"]) + _LEEWAY_S
        return login_key(
            token,
            TenantId(tenant),
            self._role(claims),
            str(claims["sub"])[:100],
            float(claims["iat"]),
            expires_at,
        )

    def _role(self, claims: Mapping[str, Any]) -> Role:
        said = _claim(claims, self._settings.role_claim)
        values = cast("list[object]", said) if isinstance(said, list) else [said]
        found = {self._settings.roles.get(value) for value in values if isinstance(value, str)}
        role = next((role for role in _STRENGTH if role in found), self._settings.default_role)
        if role is None:
            raise Forbidden("The token names no role of this service.", code="role_not_allowed")
        return role

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
            self._keys = await self._fetch()
            self._fetched_at = self._now()
        except (InvalidRequest, ValueError, RecursionError) as err:
            problem = str(err).partition("\n")[0][:200]
            log.warning("issuer's keys were not fetched", issuer=self._settings.issuer, problem=problem)
            if self._now() - self._fetched_at >= _KEEP_S:
                self._keys = {}

    async def _fetch(self) -> "Mapping[str, PyJWK]":
        issuer = self._settings.issuer
        found = await self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise _BadAnswer("the issuer's discovery document is another issuer's")
        jwks_uri = found.get("jwks_uri")
        if not isinstance(jwks_uri, str) or not is_safe_issuer_url(jwks_uri):
            raise _BadAnswer("jwks_uri is not an https URL")
        if jwks_uri.startswith("http:") and not issuer.startswith("http:"):
            raise _BadAnswer("jwks_uri is not an https URL")
        listed = (await self._get(jwks_uri)).get("keys")
        if not isinstance(listed, list):
            raise _BadAnswer("the issuer's answer has no keys")
        keys: dict[str, PyJWK] = {}
        for jwk in cast("list[object]", listed)[:_MAX_KEYS]:
            if isinstance(jwk, dict):
                self._add(cast("dict[str, Any]", jwk), keys)
        return keys

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
        answer: object = json.loads(await self._fetcher.get(url, _MAX_BYTES, whose=self._settings.issuer))
        if not isinstance(answer, dict):
            raise _BadAnswer("the issuer's answer is no JSON object")
        return cast("dict[str, Any]", answer)


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, or by its path, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = cast("dict[str, object]", found).get(part) if isinstance(found, dict) else None
    return found


def _invalid() -> Unauthorized:
    return Unauthorized("The token is not valid.", code="invalid_token")
