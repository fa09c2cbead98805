"""Who takes a turn, where tenants take turns at what a gateway has little of. Pure.

A turn is no tenant: guests have a tenant each, and anyone can come as a guest, any number of times. So all of them take one turn."""

from typing import NewType

from turnout.tasks.task_rules import PersonId, TenantId
from turnout.tenants.key_rules import is_guest

Turn = NewType("Turn", TenantId)
"""Whose turn it is."""
_GUESTS = TenantId("@guests")  # a name that no tenant can have


def turn_of(tenant: TenantId, person: PersonId | None) -> Turn:
    """Of whoever asks: the tenant, and the person if it is one."""
    return Turn(_GUESTS if person is not None and is_guest(person) else tenant)


def turn_of_other(name: str) -> Turn:
    """Of whoever is no tenant: a worker's key, an issuer."""
    return Turn(TenantId(name))
