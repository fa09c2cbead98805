"""Guests: people of whom nothing is known but where they came from. Each has a tenant of her own, so they see nothing of each
other, and is gone with all that is hers after a day. Pure."""

from turnout.people.person_rules import Person, Way, own_tenant
from turnout.tenants.allowance_rules import Allowance, DailyLimits
from turnout.tenants.key_rules import Role, guest_id, secret_digest
from turnout.tenants.tenant_settings import GuestSettings


def guest(settings: GuestSettings, random: str, network: str, now: float, terms: str = "") -> Person:
    """Somebody from `network` who comes in now. `random` is hexadecimal, of 64 bits."""
    person_id = guest_id(random)
    together = DailyLimits(settings.address_videos, settings.address_chats)
    return Person(
        id=person_id,
        tenant=own_tenant(person_id),
        role=Role.USER,
        way=Way.GUEST,
        created_at=now,
        limits=DailyLimits(settings.videos, settings.chats),
        expires_at=now + settings.stays_s,
        network=Allowance(network_account(network), together),
        terms=terms,
    )


def network_account(network: str) -> str:
    """Under what it is counted: no address stands in the name of a key."""
    return f"net-{secret_digest(network)[:32]}"
