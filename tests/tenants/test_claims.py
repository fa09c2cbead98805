"""What an issuer's claims say of somebody: her tenant, her role, what she is called."""

from typing import Any

import pytest

from turnout.errors import Forbidden
from turnout.tenants.claim_rules import email_of, name_of, named_role, role_of, tenant_of
from turnout.tenants.key_rules import Role
from turnout.tenants.tenant_settings import OidcSettings

ROLES = {"ops": Role.ADMIN, "staff": Role.USER, "look": Role.METRICS}


def settings(**fields: Any) -> OidcSettings:
    return OidcSettings("https://i.example", "turnout", **fields)


@pytest.mark.parametrize(
    ("claims", "claim", "tenant"),
    [
        ({"tenant": "acme"}, "tenant", "acme"),
        ({"org": {"team": {"id": "acme"}}}, "org.team.id", "acme"),
        ({"org.team": "acme", "org": {"team": "other"}}, "org.team", "acme"),
        ({"https://i.example/tenant": "acme"}, "https://i.example/tenant", "acme"),
        ({"tenant": "a" * 64}, "tenant", "a" * 64),
        ({}, "tenant", None),
        ({"org": "acme"}, "org.team", None),
        ({"org": {}}, "org.team", None),
    ],
)
def test_a_tenant_is_named_by_a_claim_or_by_its_path(
    claims: dict[str, Any], claim: str, tenant: str | None
) -> None:
    assert tenant_of(settings(tenant_claim=claim), claims) == tenant


@pytest.mark.parametrize("said", ["", "a b", "a" * 65, "acme\n", 7, ["acme"], {"id": "acme"}])
def test_what_cannot_be_a_tenant_lets_nobody_in(said: object) -> None:
    with pytest.raises(Forbidden, match=r"^The token names no tenant") as refusal:
        tenant_of(settings(), {"tenant": said})
    assert refusal.value.code == "no_tenant"


@pytest.mark.parametrize(
    ("said", "role"),
    [
        ("ops", Role.ADMIN),
        (["look", "staff", "ops"], Role.ADMIN),
        (["look", "staff"], Role.USER),
        (["look", 7, None, {"ops": 1}, ["ops"]], Role.METRICS),
        (["unknown"], None),
        ([], None),
        (None, None),
        ({"ops": True}, None),
    ],
)
def test_of_several_roles_the_strongest_counts(said: object, role: Role | None) -> None:
    claims = {"realm_access": {"roles": said}}
    named = settings(role_claim="realm_access.roles", roles=ROLES)
    assert named_role(named, claims) == role
    assert role_of(named, claims) == (role or Role.USER), "others have the default role"


def test_without_a_default_role_nobody_comes_in_whose_role_is_not_named() -> None:
    strict = settings(roles=ROLES, default_role=None)
    assert role_of(strict, {"roles": "look"}) is Role.METRICS
    with pytest.raises(Forbidden, match=r"^The token names no role of this service\.$") as refusal:
        role_of(strict, {"roles": "unknown"})
    assert refusal.value.code == "role_not_allowed"


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"name": " Ann ", "preferred_username": "ann", "sub": "1"}, "Ann"),
        ({"name": " ", "preferred_username": "ann", "nickname": "a", "sub": "1"}, "ann"),
        ({"nickname": "annie", "email": "ann@example.com", "sub": "1"}, "annie"),
        ({"email": "ann@example.com", "sub": "1"}, "ann@example.com"),
        ({"name": 7, "sub": "1"}, "1"),
        ({"name": "x" * 101}, "x" * 100),
        ({}, ""),
    ],
)
def test_a_name_is_the_first_that_is_given(claims: dict[str, Any], name: str) -> None:
    assert name_of(claims) == name


@pytest.mark.parametrize(
    ("claims", "email"),
    [({"email": "ann@example.com"}, "ann@example.com"), ({"email": "x" * 256}, "x" * 255), ({"email": 7}, ""), ({}, "")],
)  # fmt: skip
def test_an_address_is_text_and_fits(claims: dict[str, Any], email: str) -> None:
    assert email_of(claims) == email
