"""What a key, a session and a login may do, and until when."""

import hashlib

import pytest

from turnout.errors import Limited
from turnout.tasks.task_rules import PersonId, TenantId
from turnout.tenants.allowance_rules import Allowance, Bounded, DailyLimits, limits_on, over_allowance
from turnout.tenants.key_rules import (
    OWN_ADMIN,
    OWN_WORKER,
    Key,
    Role,
    bootstrap_id,
    guest_id,
    in_use_by,
    is_guest,
    is_login,
    is_session,
    login_key,
    matches,
    mint,
    mint_session,
    missing_keys,
    person_of,
    rotate,
    secret_digest,
    split_token,
    tenant_of_new,
    with_parent,
)

ACME = TenantId("acme")


def key(expires_in_s: float | None = None, *, role: Role = Role.ADMIN, now: float = 100.0) -> Key:
    return mint("k1", "secret", ACME, role, "laptop", now, expires_in_s)[0]


def test_a_token_is_split_into_the_id_and_the_secret_that_it_was_made_of() -> None:
    made, token = mint("k1", "secret", ACME, Role.USER, "laptop", 100.0)
    assert token == "tk-k1.secret" and split_token(token) == ("k1", "secret")
    assert made == Key("k1", ACME, Role.USER, "laptop", hashlib.sha256(b"secret").hexdigest(), 100.0, None)
    assert matches(made, "secret") and not matches(made, "secre")


@pytest.mark.parametrize("token", ["", "tk-k1", "tk-k1.", "k1.secret", "a.b.c.d", "a..", "..."])
def test_what_has_not_the_form_of_a_token_is_none(token: str) -> None:
    parts = split_token(token)
    assert parts is None or is_login(parts[0])
    assert (parts is None) == (token.count(".") != 2)


def test_a_jwt_is_all_secret_and_its_id_says_that_it_is_a_login() -> None:
    key_id, secret = split_token("head.body.signature") or ("", "")
    assert secret == "head.body.signature"
    assert key_id == f"oidc-{secret_digest(secret)[:32]}"
    login = login_key(secret, ACME, Role.USER, "ann", 5.0, 9.0)
    assert login == Key(key_id, ACME, Role.USER, "ann", secret_digest(secret), 5.0, 9.0)
    assert is_login(key_id) and not is_login("k1") and not is_session(key_id)
    assert split_token("tk-oidc-a.b.c") == ("oidc-a", "b.c"), "a key of ours is never taken for a login"


@pytest.mark.parametrize(
    ("given", "role", "tenant"),
    [
        ("acme", Role.USER, "acme"),
        ("acme", Role.ADMIN, "acme"),
        ("", Role.USER, "t-k1"),
        ("", Role.ADMIN, "default"),
        ("", Role.WORKER, "default"),
        ("", Role.METRICS, "default"),
    ],
)
def test_whose_a_new_key_is(given: str, role: Role, tenant: str) -> None:
    assert tenant_of_new(given, role, "k1") == tenant


def test_a_key_is_refused_from_its_expiry_on() -> None:
    assert [key(50.0).expired(now) for now in (100.0, 149.9, 150.0, 151.0)] == [False, False, True, True]
    assert not key().expired(1e18)
    assert key(0.0).expired(100.0)


def test_a_rotated_key_may_do_the_same_and_lives_as_long_as_the_old_one_was_to() -> None:
    old = key(1000.0, role=Role.WORKER)
    new, token, left = rotate(old, "k2", "other", 400.0, 60.0, None)
    assert (new.tenant, new.role, new.name, new.created_at) == (ACME, Role.WORKER, "laptop", 400.0)
    assert (new.expires_at, token) == (1400.0, "tk-k2.other")
    assert (left.id, left.digest, left.expires_at) == (old.id, old.digest, 460.0)
    assert rotate(old, "k2", "other", 400.0, 60.0, 5.0)[0].expires_at == 405.0
    assert rotate(old, "k2", "other", 1090.0, 60.0, None)[2].expires_at == 1100.0, "never prolonged"
    new, _, left = rotate(key(), "k2", "other", 400.0, 0.0, None)
    assert (new.expires_at, left.expires_at) == (None, 400.0)


@pytest.mark.parametrize(
    ("key_lives_s", "session_ends_at"), [(None, 260.0), (1000.0, 260.0), (90.0, 190.0), (20.0, 120.0)]
)
def test_a_session_ends_with_its_key_or_before(key_lives_s: float | None, session_ends_at: float) -> None:
    parent = key(key_lives_s)
    session, token = mint_session("a1", "secret", parent, 200.0, 60.0)
    assert (session.id, token) == ("s-a1", "tk-s-a1.secret")
    assert is_session(session.id) and not is_session(parent.id) and not is_login(session.id)
    assert session.expires_at == session_ends_at
    assert session.expired(200.0) == parent.expired(200.0), "a key that has expired opens none"
    assert (session.tenant, session.role, session.name) == (ACME, Role.ADMIN, "laptop")


def test_a_session_follows_what_becomes_of_its_key() -> None:
    session, _ = mint_session("a1", "secret", key(), 200.0, 60.0)
    less = with_parent(session, Key("k1", TenantId("other"), Role.USER, "laptop", "d", 100.0, 210.0))
    assert (less.tenant, less.role, less.expires_at) == ("other", Role.USER, 210.0)
    assert (less.id, less.digest) == (session.id, session.digest)
    endless = with_parent(key(), key())
    assert endless.expires_at is None


PERSON = PersonId("p-0123456789abcdef")


@pytest.mark.parametrize(
    ("key_id", "person"),
    [
        (PERSON, PERSON),
        (f"{PERSON}-00000000", PERSON),
        ("g-0123456789abcdef", "g-0123456789abcdef"),
        ("p-0123456789abcde", None),
        ("p-0123456789ABCDEF", None),
        (f"{PERSON}-0000000", None),
        (f"{PERSON}-000000000", None),
        (f"s-{PERSON}", None),
        ("q-0123456789abcdef", None),
        ("", None),
    ],
)
def test_the_id_of_a_person_s_key_begins_with_hers(key_id: str, person: str | None) -> None:
    assert person_of(key_id) == person


def test_a_guest_is_known_by_her_id() -> None:
    assert guest_id("0123456789abcdef") == "g-0123456789abcdef"
    assert is_guest(guest_id("0123456789abcdef")) and not is_guest(PERSON)


def test_a_session_is_its_parent_and_a_person_s_key_may_do_less() -> None:
    allowances = (Allowance(PERSON, DailyLimits(videos=3)),)
    admin = Key(PERSON, ACME, Role.ADMIN, "Ada", "", 100.0, 500.0, person=PERSON, allowances=allowances)
    session = with_parent(mint_session("a1", "secret", key(role=Role.USER), 100.0, 60.0)[0], admin)
    assert (session.role, session.name, session.expires_at) == (Role.ADMIN, "Ada", 160.0)
    assert (session.parent, session.person, session.allowances) == (PERSON, PERSON, allowances)
    made_for = {role: with_parent(key(role=role), admin) for role in (Role.USER, Role.ADMIN)}
    assert {role: made.role for role, made in made_for.items()} == {
        Role.USER: Role.USER,
        Role.ADMIN: Role.ADMIN,
    }
    assert all((made.name, made.expires_at) == ("laptop", 500.0) for made in made_for.values())
    user = Key(PERSON, ACME, Role.USER, "Ada", "", 100.0)
    assert with_parent(key(role=Role.ADMIN), user).role is Role.USER


def test_the_bootstrap_adds_only_keys_that_it_made_and_never_added() -> None:
    def of(key_id: str) -> Key:
        return mint(key_id, "s", ACME, Role.ADMIN, "", 0.0)[0]

    assert bootstrap_id("1") == "boot-1"
    new, added, known, other = of("boot-1"), of("boot-2"), of("boot-3"), of("k1")
    secret = [new, added, known, other]
    assert missing_keys(secret, (), ()) == missing_keys(secret, (), {"boot-1"}) == secret, "all is new"
    assert missing_keys(secret, {"boot-3"}, {"boot-2"}) == [new]
    assert missing_keys(secret, {"else"}, ()) == [new, added, known]


def test_who_would_be_cut_off_by_a_revocation_is_named() -> None:
    def named(name: str) -> Key:
        return mint("k1", "s", ACME, Role.ADMIN, name, 0.0)[0]

    assert in_use_by(named("laptop"), {"k2"}) is None
    assert in_use_by(named(OWN_ADMIN), {"k1"}) == "You are using this key yourself."
    assert in_use_by(named(OWN_ADMIN), ()) == (
        "Commands on the machine of `turnout up` use this key, until the next `turnout up` makes another."
    )
    assert in_use_by(named(OWN_WORKER), ()) == (
        "The worker of `turnout up` joined with this key, and is evicted until the next `turnout up`."
    )


def test_allowances_bound_what_they_name() -> None:
    allowances = (
        Allowance("ada", DailyLimits(videos=3)),
        Allowance("net", DailyLimits(videos=0, chats=9)),
        Allowance("all", DailyLimits()),
    )
    assert limits_on(allowances, "videos") == [("ada", 3), ("net", 0)]
    assert limits_on(allowances, "chats") == [("net", 9)]
    assert limits_on((), "chats") == []


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("videos", "You may ask for 3 videos in a day; the day ends at 00:00 UTC."),
        ("chats", "You may ask for 3 chats in a day; the day ends at 00:00 UTC."),
        ("guests", "3 guests may come from one address in a day; the day ends at 00:00 UTC."),
    ],
)
def test_who_asked_for_enough_today_is_told_when_tomorrow_begins(what: Bounded, says: str) -> None:
    assert over_allowance(what, 3, 2 * 86_400 + 86_390.5) == Limited(
        says, code="daily_limit", retry_after_s=9.5
    )
    assert over_allowance(what, 3, 2 * 86_400.0).retry_after_s == 86_400
