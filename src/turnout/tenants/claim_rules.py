"""What an issuer's claims say of somebody: her tenant, her role, what she is called. Pure."""

import re
from collections.abc import Mapping
from typing import Any, cast

from turnout.errors import Forbidden
from turnout.tasks.task_rules import TenantId
from turnout.tenants.key_json import TENANT
from turnout.tenants.key_rules import Role
from turnout.tenants.tenant_settings import OidcSettings

_STRENGTH = (Role.ADMIN, Role.USER, Role.METRICS)
_MAX_NAME_CHARS = 100
_MAX_EMAIL_CHARS = 255


def tenant_of(settings: OidcSettings, claims: Mapping[str, Any]) -> TenantId | None:
    """None if nothing is said. Raises Forbidden for what cannot be a tenant's name."""
    tenant = _claim(claims, settings.tenant_claim)
    if tenant is None:
        return None
    if not isinstance(tenant, str) or not re.fullmatch(TENANT, tenant):
        raise no_tenant()
    return TenantId(tenant)


def no_tenant() -> Forbidden:
    return Forbidden("The token names no tenant that this service can have.", code="no_tenant")


def named_role(settings: OidcSettings, claims: Mapping[str, Any]) -> Role | None:
    """The strongest that is named; None if none is."""
    said = _claim(claims, settings.role_claim)
    values = cast("list[object]", said) if isinstance(said, list) else [said]
    found = {settings.roles.get(value) for value in values if isinstance(value, str)}
    return next((role for role in _STRENGTH if role in found), None)


def role_of(settings: OidcSettings, claims: Mapping[str, Any]) -> Role:
    """Raises Forbidden where none is named and others are refused."""
    role = named_role(settings, claims) or settings.default_role
    if role is None:
        raise Forbidden("The token names no role of this service.", code="role_not_allowed")
    return role


def name_of(claims: Mapping[str, Any]) -> str:
    """The first of the names that issuers give; the subject, if they give none."""
    for claim in ("name", "preferred_username", "nickname", "email", "sub"):
        found = claims.get(claim)
        if isinstance(found, str) and found.strip():
            return found.strip()[:_MAX_NAME_CHARS]
    return ""


def email_of(claims: Mapping[str, Any]) -> str:
    found = claims.get("email")
    return found[:_MAX_EMAIL_CHARS] if isinstance(found, str) else ""


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """A claim by its name, or by its path, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = cast("dict[str, object]", found).get(part) if isinstance(found, dict) else None
    return found
