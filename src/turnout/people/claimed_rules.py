"""Who a person is by what her issuer claims of her. Pure.

What the issuer says counts at every login: her name, her address, and her tenant and role where it names them. Where it does not, a
newcomer has a tenant of her own and the default role, and whoever was here before keeps what an admin gave her."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turnout.errors import Forbidden
from turnout.people.person_rules import ROLES, Person, Way, moved, own_tenant
from turnout.tasks.task_rules import PersonId
from turnout.tenants.claim_rules import email_of, name_of, named_role, role_of, tenant_of
from turnout.tenants.key_rules import Role
from turnout.tenants.tenant_settings import OidcSettings


def claimed(settings: OidcSettings, claims: Mapping[str, Any], person_id: PersonId, now: float) -> Person:
    """A newcomer. Raises Forbidden where the claims let nobody in."""
    return Person(
        id=person_id,
        tenant=tenant_of(settings, claims) or own_tenant(person_id),
        role=_a_persons(role_of(settings, claims)),
        way=Way.OIDC,
        created_at=now,
        name=name_of(claims),
        email=email_of(claims),
        issuer=settings.issuer,
        subject=str(claims["sub"]),
    )


def renewed(person: Person, settings: OidcSettings, claims: Mapping[str, Any]) -> Person:
    """Somebody who logs in again. Raises Forbidden where the claims let nobody in any more."""
    named = named_role(settings, claims)
    role_of(settings, claims)
    return replace(
        moved(person, tenant_of(settings, claims) or person.tenant),
        role=person.role if named is None else _a_persons(named),
        name=name_of(claims) or person.name,
        email=email_of(claims) or person.email,
    )


def _a_persons(role: Role) -> Role:
    if role not in ROLES:
        raise Forbidden(f"Somebody with the role {role} cannot log in on the page.", code="role_not_allowed")
    return role
