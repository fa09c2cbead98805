"""Who a person is: by an invite, by her issuer's claims, as a guest; and what she may do now."""

from dataclasses import replace
from typing import Any

import pytest

from turnout.errors import Forbidden
from turnout.people.claimed_rules import claimed, renewed
from turnout.people.guest_rules import guest, network_account
from turnout.people.invite_rules import Invite, invited, new_invite, split_invite
from turnout.people.person_rules import Person, Way, as_key, subject_digest
from turnout.tasks.task_rules import PersonId, TenantId
from turnout.tenants.allowance_rules import Allowance, DailyLimits
from turnout.tenants.key_rules import Key, Role, mint, mint_session, secret_digest, with_parent
from turnout.tenants.tenant_settings import GuestSettings, OidcSettings

ADA = PersonId("p-0123456789abcdef")
ISSUER = "https://i.example"
ROLES = {"ops": Role.ADMIN, "staff": Role.USER, "look": Role.METRICS}


def settings(**fields: Any) -> OidcSettings:
    return OidcSettings(ISSUER, "turnout", roles=ROLES, **fields)


def test_a_person_is_a_key_without_a_secret_that_ends_with_her() -> None:
    network = Allowance("net-1", DailyLimits(chats=9))
    person = Person(ADA, TenantId("acme"), Role.ADMIN, Way.INVITE, 100.0, "Ada", network=network)
    key = Key(ADA, TenantId("acme"), Role.ADMIN, "Ada", "", 100.0, person=ADA, allowances=(network,))
    assert as_key(person) == key
    assert as_key(replace(person, expires_at=500.0)) == replace(key, expires_at=500.0)
    assert as_key(replace(person, expires_at=500.0, disabled_at=200.0)) == replace(key, expires_at=0.0)
    own = Allowance(ADA, DailyLimits(videos=0))
    assert as_key(replace(person, limits=own.limits)).allowances == (own, network), (
        "none a day is a limit, too"
    )
    assert as_key(replace(person, limits=own.limits, network=None)).allowances == (own,)


def person(**fields: Any) -> Person:
    return replace(Person(ADA, TenantId("t-ada"), Role.USER, Way.INVITE, 100.0, "Ada"), **fields)


def test_a_session_or_key_of_a_person_is_worth_what_she_is_now() -> None:
    session, _ = mint_session("0", "s", as_key(person()), 100.0, 50)
    key, _ = mint(f"{ADA}-00000000", "s", TenantId("t-ada"), Role.USER, "ci", 100.0)
    risen = as_key(person(name="Ada L.", role=Role.ADMIN, limits=DailyLimits(videos=3)))
    assert (session.tenant, session.role, session.person, session.expires_at) == ("t-ada", "user", ADA, 150)
    now = with_parent(session, risen)
    assert (now.role, now.name, now.allowances) == (Role.ADMIN, "Ada L.", risen.allowances)
    assert (with_parent(key, risen).role, with_parent(key, risen).name) == (Role.USER, "ci"), "as it was made"
    admins, _ = mint(f"{ADA}-00000001", "s", TenantId("t-ada"), Role.ADMIN, "", 100.0)
    assert (
        with_parent(admins, risen).role is Role.ADMIN
        and with_parent(admins, as_key(person())).role is Role.USER
    )
    for gone in (person(disabled_at=120.0), person(expires_at=120.0)):
        assert with_parent(session, as_key(gone)).expired(121) and with_parent(key, as_key(gone)).expired(121)
    back = with_parent(session, as_key(person()))
    assert not back.expired(121) and back.expired(150), "let back in, she goes on until its own end"


def test_she_is_found_by_her_issuers_name_for_her() -> None:
    assert subject_digest(ISSUER, "1") == secret_digest(f"{ISSUER}\n1")
    assert len({subject_digest("a", "bc"), subject_digest("ab", "c"), subject_digest("a", "b")}) == 3


@pytest.mark.parametrize("token", ["", ".", "i-1", "i-1.", ".secret"])
def test_what_is_no_invite_opens_nothing(token: str) -> None:
    assert split_invite(token) is None


def test_an_invite_opens_by_its_secret_until_it_ends_and_says_what_who_comes_may() -> None:
    invite, token = new_invite("i-1", "a.b", 100.0, 60, "k1")
    assert invite == Invite("i-1", secret_digest("a.b"), 100.0, 160.0, "k1")
    assert split_invite(token) == ("i-1", "a.b")
    assert invite.opens("a.b", 159.9) and not invite.opens("a.b", 160.0) and not invite.opens("a", 159.9)
    own = invited(invite, ADA, "Ada", "", 120.0)
    assert (own.tenant, own.had_own_tenant, own.role, own.expires_at) == (f"t-{ADA}", True, Role.USER, None)
    told = replace(invite, tenant="design", role=Role.ADMIN, stays_s=10, limits=DailyLimits(chats=2))
    assert invited(told, ADA, "Ada", "ada@example.com", 120.0) == Person(
        ADA,
        TenantId("design"),
        Role.ADMIN,
        Way.INVITE,
        120.0,
        "Ada",
        "ada@example.com",
        limits=DailyLimits(chats=2),
        expires_at=130.0,
        invited_by="i-1",
    )
    assert invited(replace(told, stays_s=0), ADA, "", "", 120.0).expires_at == 120.0


def test_a_newcomer_is_what_her_issuer_says() -> None:
    claims = {"sub": 7, "tenant": "acme", "roles": ["ops"], "name": "Ann", "email": "ann@example.com"}
    told = Person(
        ADA, TenantId("acme"), Role.ADMIN, Way.OIDC, 100.0, "Ann", "ann@example.com", issuer=ISSUER, subject="7"
    )  # fmt: skip
    assert claimed(settings(), claims, ADA, 100.0) == told
    alone = claimed(settings(), {"sub": "7"}, ADA, 100.0)
    assert (alone.had_own_tenant, alone.role, alone.name, alone.email) == (True, Role.USER, "7", "")


def test_at_the_next_login_what_the_issuer_says_counts_and_what_it_does_not_say_stays() -> None:
    ann = claimed(settings(), {"sub": "1", "name": "Ann", "email": "a@x"}, ADA, 100.0)
    ann = replace(ann, role=Role.ADMIN, tenant=TenantId("design"))
    assert renewed(ann, settings(), {}) == ann == renewed(ann, settings(), {"roles": []})
    said = {"roles": "staff", "tenant": "acme", "name": "Ann L.", "email": "l@x"}
    told = replace(ann, role=Role.USER, tenant=TenantId("acme"), name="Ann L.", email="l@x")
    assert renewed(ann, settings(), said) == replace(told, former=(TenantId("design"),))


def test_a_login_that_names_no_role_for_people_is_refused_the_first_and_every_time() -> None:
    ann = claimed(settings(), {"sub": "1"}, ADA, 100.0)
    with pytest.raises(Forbidden, match=r"^Somebody with the role metrics cannot log in") as refusal:
        claimed(settings(), {"sub": "1", "roles": "look"}, ADA, 100.0)
    assert refusal.value.code == "role_not_allowed"
    with pytest.raises(Forbidden, match="role metrics"):
        renewed(ann, settings(), {"roles": "look"})
    with pytest.raises(Forbidden, match="no role of this service"):
        renewed(ann, settings(default_role=None), {})


def test_a_guest_is_bounded_by_herself_and_with_all_from_her_network() -> None:
    given = GuestSettings(videos=1, chats=2, address_videos=3, address_chats=4, stays_s=60)
    made = guest(given, "0123456789abcdef", "203.0.113.7", 100.0, "2026-11")
    assert made == Person(
        PersonId("g-0123456789abcdef"),
        TenantId("t-g-0123456789abcdef"),
        Role.USER,
        Way.GUEST,
        100.0,
        limits=DailyLimits(1, 2),
        expires_at=160.0,
        network=Allowance(network_account("203.0.113.7"), DailyLimits(3, 4)),
        terms="2026-11",
    )
    assert guest(given, "0123456789abcdef", "203.0.113.7", 100.0).terms == ""


def test_an_account_of_a_network_does_not_tell_the_address() -> None:
    account = network_account("203.0.113.7")
    assert account == f"net-{secret_digest('203.0.113.7')[:32]}" != network_account("203.0.113.8")
