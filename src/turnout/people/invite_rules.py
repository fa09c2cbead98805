"""Invites: who has the link may come in, so often and so long, as what the invite says. Only a hash of its secret is stored. Pure."""

import hmac
from dataclasses import dataclass, field

from turnout.people.person_rules import Person, Way, own_tenant
from turnout.tasks.task_rules import PersonId, TenantId
from turnout.tenants.allowance_rules import DailyLimits
from turnout.tenants.key_rules import Role, secret_digest

KEPT_S = 30 * 86_400  # how long one that is over is still listed


@dataclass(frozen=True, slots=True)
class Invite:
    """`tenant` empty: each has one of her own. `stays_s` is for how long those who come may stay; None: for ever. One with a
    `person` makes nobody: it leads back to her. `made_by` is the person or key that made it."""

    id: str
    digest: str
    created_at: float
    expires_at: float
    made_by: str
    uses: int = 1
    tenant: str = ""
    role: Role = Role.USER
    limits: DailyLimits = field(default_factory=DailyLimits)
    stays_s: int | None = None
    note: str = ""
    person: PersonId | None = None

    def opens(self, secret: str, now: float) -> bool:
        """Compared whether or not it is over, in the same time for any secret."""
        return hmac.compare_digest(self.digest, secret_digest(secret)) and now < self.expires_at


def new_invite(
    invite_id: str, secret: str, now: float, expires_in_s: int, made_by: str
) -> tuple[Invite, str]:
    """The record, and what stands in the link. `invite_id` and `secret` are random, url-safe, without '.'."""
    invite = Invite(invite_id, secret_digest(secret), now, now + expires_in_s, made_by)
    return invite, f"{invite_id}.{secret}"


def split_invite(token: str) -> tuple[str, str] | None:
    """(id, secret), or None when it has not the form of an invite."""
    invite_id, _, secret = token.partition(".")
    return (invite_id, secret) if invite_id and secret else None


def invited(invite: Invite, person_id: PersonId, name: str, email: str, now: float) -> Person:
    """Whoever comes by the invite now."""
    return Person(
        id=person_id,
        tenant=TenantId(invite.tenant) if invite.tenant else own_tenant(person_id),
        role=invite.role,
        way=Way.INVITE,
        created_at=now,
        name=name,
        email=email,
        limits=invite.limits,
        expires_at=None if invite.stays_s is None else now + invite.stays_s,
        invited_by=invite.id,
    )
