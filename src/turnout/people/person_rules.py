"""A person, and what her sessions and keys are worth now. Pure.

A person is the parent of her sessions and keys, as a key is the parent of sessions that it opened: `as_key` is what she may do
now, and `key_rules.with_parent` what a child of hers may."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from turnout.tasks.task_rules import PersonId, TenantId
from turnout.tenants.allowance_rules import Allowance, DailyLimits
from turnout.tenants.key_rules import Key, Role, secret_digest

ROLES = (Role.USER, Role.ADMIN)
"""What a person can be. Machines have keys."""


_MOST_FORMER = 50


class Way(StrEnum):
    """How a person came in."""

    INVITE = "invite"
    OIDC = "oidc"
    GUEST = "guest"


@dataclass(frozen=True, slots=True)
class Person:
    """`issuer` and `subject` name her where she logs in by an issuer. From `expires_at` on she is nobody; None: never.
    One that is disabled comes back as she was. `invited_by` is the invite that she came by, `network` what all guests from where
    a guest came may ask for together. `terms` are the terms of use that she accepted last. `former` are tenants that she had before:
    what she asked for there is hers."""

    id: PersonId
    tenant: TenantId
    role: Role
    way: Way
    created_at: float
    name: str = ""
    email: str = ""
    issuer: str = ""
    subject: str = ""
    limits: DailyLimits = field(default_factory=DailyLimits)
    expires_at: float | None = None
    disabled_at: float | None = None
    invited_by: str = ""
    network: Allowance | None = None
    terms: str = ""
    former: tuple[TenantId, ...] = ()

    @property
    def tenants(self) -> tuple[TenantId, ...]:
        """All that may have something of hers."""
        return (self.tenant, *self.former)

    @property
    def had_own_tenant(self) -> bool:
        return own_tenant(self.id) in self.tenants


def moved(person: Person, tenant: TenantId) -> Person:
    """The person, in that tenant from now on."""
    before = dict.fromkeys(person.tenants)
    before.pop(tenant, None)
    return replace(person, tenant=tenant, former=tuple(before)[:_MOST_FORMER])


def own_tenant(person: PersonId) -> TenantId:
    return TenantId(f"t-{person}")


def as_key(person: Person) -> Key:
    """What she may do, as a key that nobody has the secret of."""
    own = Allowance(person.id, person.limits) if person.limits != DailyLimits() else None
    return Key(
        id=person.id,
        tenant=person.tenant,
        role=person.role,
        name=person.name,
        digest="",
        created_at=person.created_at,
        expires_at=person.expires_at if person.disabled_at is None else 0.0,
        person=person.id,
        allowances=tuple(one for one in (own, person.network) if one is not None),
    )


def subject_digest(issuer: str, subject: str) -> str:
    """Under what she is found by her issuer's name for her."""
    return secret_digest(f"{issuer}\n{subject}")
