"""A gateway's share: what it asks for, what it gives back, and that nothing enters past a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.chat.quota_rules import ChatLimits, Grant, ShareRequest, TenantShare
from turnout.errors import Limited


def filled(limits: ChatLimits, **grant: int) -> TenantShare:
    share = TenantShare(limits)
    share.waiting = 1
    share.refill(share.refill_request(), Grant(**grant), 0.0)
    share.waiting = 0
    return share


def test_without_limits_everything_enters() -> None:
    share = TenantShare(ChatLimits())
    assert all(share.enter() for _ in range(1000))
    assert not share.low
    assert share.header_lines == b""
    share.waiting = 9
    assert share.refill_request() == ShareRequest(), "nothing is asked for"


def test_a_share_is_refilled_for_later_and_for_those_who_wait() -> None:
    share = TenantShare(ChatLimits(600, 60_000, 32))
    share.waiting = 3
    assert not share.enter()
    assert share.refill_request() == ShareRequest(requests=33, tokens=3000, debt=0, permits=5)


def test_an_idle_share_gives_everything_back_and_can_be_forgotten() -> None:
    share = filled(ChatLimits(600, 60_000, 32), requests=30, tokens=3000, permits=3)
    assert share.enter()
    share.leave(100)
    share.refill_request()  # somebody came since the last look
    share.refill(ShareRequest(), Grant(permits=3), 0.0)
    request = share.refill_request()
    assert request == ShareRequest(requests=-29, tokens=-2900, permits=0)
    assert not share.enter(), "what was given back is not used once more"
    share.refill(request, Grant(), 0.0)
    assert share.unused


def test_tokens_are_paid_when_they_are_known_and_debt_stops_the_next_request() -> None:
    share = filled(ChatLimits(tokens_per_minute=1000), tokens=50)
    assert share.enter()
    assert share.enter()
    share.leave(400)
    assert not share.enter()
    request = share.refill_request()
    assert (request.debt, request.tokens) == (350, 50)
    share.refill(request, Grant(tokens=0, left_tokens=-100.0), now=10.0)
    with pytest.raises(Limited) as refused:
        share.refuse_if_exhausted(10.5)
    assert refused.value.retry_after_s == pytest.approx(101 / (1000 / 60))
    share.refuse_if_exhausted(11.5)  # others may have given something back: look again


def test_a_request_that_goes_elsewhere_keeps_its_slot_and_is_not_counted_twice() -> None:
    share = filled(ChatLimits(600, 0, 4), requests=1, permits=1)
    assert share.enter()
    share.leave()
    share.reenter()
    assert (share.running, share.requests) == (1, 0)


def test_a_share_whose_requests_only_wait_does_not_take_its_account_for_empty() -> None:
    share = filled(ChatLimits(concurrency=500), permits=32)
    assert share.enter()
    share.refill(share.refill_request(), Grant(permits=32), 0.0)
    idle = share.refill_request()  # nobody came since: nothing to spare is asked for
    assert idle.permits == 1
    share.refill(idle, Grant(permits=1), now=2.0)
    assert not share.enter()
    share.refuse_if_exhausted(2.1)
    share.waiting = 1
    asked = share.refill_request()
    assert asked.permits > 1
    share.refill(asked, Grant(permits=1), now=2.2)  # others have all the rest
    with pytest.raises(Limited):
        share.refuse_if_exhausted(2.3)


@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["enter", "leave", "look", "lost"])), max_size=200),
)
def test_several_gateways_never_exceed_an_account_whatever_is_lost(
    requests: int, permits: int, moves: list[tuple[int, str]]
) -> None:
    """The account here has no drip: its requests are all there will ever be."""
    limits = ChatLimits(requests, 0, permits)
    shares = [TenantShare(limits) for _ in range(3)]
    held = [0, 0, 0]
    left, entered = requests, 0
    for which, move in moves:
        share = shares[which]
        if move == "enter":
            entered += share.enter()
        elif move == "leave" and share.running:
            share.leave()
        elif move in ("look", "lost"):
            share.waiting = 1
            request = share.refill_request()
            share.waiting = 0
            got = max(0, min(request.requests, left)) if request.requests > 0 else request.requests
            left -= got
            held[which] = max(0, min(request.permits, permits - sum(held) + held[which]))
            if move == "look":
                share.refill(request, Grant(max(0, got), 0, held[which], left, 0), 0.0)
            else:
                held[which] = max(held[which], int(share.permits))  # it may still use what it had
        assert entered <= requests
        assert sum(p.running for p in shares) <= permits


@given(
    st.integers(1, 600),
    st.integers(0, 600),
    st.lists(st.tuples(st.floats(0, 20), st.integers(0, 50)), max_size=20),
)
def test_while_the_account_is_away_a_share_lends_no_more_than_the_account_held_and_got(
    per_minute: int, left: int, moves: list[tuple[float, int]]
) -> None:
    share = TenantShare(ChatLimits(requests_per_minute=per_minute, concurrency=50))
    left = min(left, per_minute)
    share.refill(share.refill_request(), Grant(left_requests=float(left)), 0.0)
    now, entered = 0.0, 0
    for pause_s, tries in moves:
        now += pause_s
        for _ in range(tries):
            share.lend(now)
            if share.enter():
                entered += 1
                share.leave()
    assert entered <= left + now * per_minute / 60 + 1e-6
    owed = share.refill_request()
    assert owed.lent_requests == entered + max(0, -owed.requests if owed.requests < 0 else 0) + int(
        share.requests
    )


def test_a_tenant_that_owes_is_lent_nothing_until_that_is_paid() -> None:
    share = TenantShare(ChatLimits(tokens_per_minute=60))
    share.refill(share.refill_request(), Grant(left_tokens=-10.0), 0.0)
    share.lend(9.0)
    assert not share.enter()
    with pytest.raises(Limited):
        share.refuse_if_exhausted(9.0)
    share.lend(12.0)
    assert share.enter()


def test_lent_tokens_are_paid_once() -> None:
    share = TenantShare(ChatLimits(tokens_per_minute=600))
    share.lend(0.0)
    assert share.enter()
    share.leave(100)
    request = share.refill_request()
    assert (request.lent_tokens, request.debt) == (30, 70)
    share.refill(request, Grant(tokens=request.tokens, left_tokens=400.0), 1.0)
    assert share.tokens == 30
    assert share.refill_request().lent_tokens == 0


@pytest.mark.parametrize(
    ("limits", "grant", "lend", "why", "retry_s"),
    [
        (ChatLimits(60), Grant(left_requests=0.25), False, "Over 60 requests a minute.", 0.75),
        (ChatLimits(0, 120), Grant(left_tokens=-1.0), False, "Over 120 tokens a minute.", 1.0),
        (ChatLimits(0, 0, 4), Grant(), False, "Over 4 requests at once.", 1.0),
        (ChatLimits(30), Grant(), True, "Over 30 requests a minute.", 2.0),
        (ChatLimits(0, 120), Grant(), True, "Over 120 tokens a minute.", 1.0),
    ],
)
def test_who_is_refused_is_told_the_limit_and_when_to_come_again(
    limits: ChatLimits, grant: Grant, lend: bool, why: str, retry_s: float
) -> None:
    share = TenantShare(limits)
    share.waiting = 1
    share.refill(share.refill_request(), grant, 10.0)
    if lend:
        share.lend(10.0)
    with pytest.raises(Limited) as refused:
        share.refuse_if_exhausted(10.0)
    assert (str(refused.value), refused.value.code) == (why, "rate_limit_exceeded")
    assert refused.value.retry_after_s == retry_s


def test_a_share_whose_slots_are_all_taken_refuses_while_the_account_is_away() -> None:
    share = TenantShare(ChatLimits(concurrency=2))
    share.lend(0.0)
    assert share.enter() and share.enter()
    share.lend(1.0)
    with pytest.raises(Limited, match="Over 2 requests at once"):
        share.refuse_if_exhausted(1.0)


@pytest.mark.parametrize(
    ("granted", "left", "remaining", "reset"),
    [(10, 20.0, 30, "30.000s"), (0, -9.0, 0, "60.000s"), (50, 50.0, 60, "0.000s")],
)
def test_clients_read_what_is_left_here_and_in_the_account(
    granted: int, left: float, remaining: int, reset: str
) -> None:
    share = TenantShare(ChatLimits(60))
    share.waiting = 1
    share.refill(share.refill_request(), Grant(requests=granted, left_requests=left), 0.0)
    assert share.header_lines.decode() == (
        f"x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: {remaining}\r\n"
        f"x-ratelimit-reset-requests: {reset}\r\n"
    )


def refused(share: TenantShare, now: float) -> str | None:
    try:
        share.refuse_if_exhausted(now)
    except Limited as err:
        return err.message
    return None


@pytest.mark.parametrize(
    ("limits", "asked", "why"),
    [
        (ChatLimits(20), ShareRequest(requests=1), "Over 20 requests a minute."),
        (ChatLimits(20), ShareRequest(requests=0), None),
        (ChatLimits(20), ShareRequest(requests=-1), None),
        (ChatLimits(0, 20), ShareRequest(tokens=1), "Over 20 tokens a minute."),
        (ChatLimits(0, 20), ShareRequest(tokens=0), None),
        (ChatLimits(0, 0, 2), ShareRequest(permits=1), "Over 2 requests at once."),
        (ChatLimits(0, 0, 2), ShareRequest(permits=2), "Over 2 requests at once."),
        (ChatLimits(0, 0, 2), ShareRequest(permits=0), None),
    ],
)
def test_an_account_is_empty_only_for_what_it_was_asked_for(
    limits: ChatLimits, asked: ShareRequest, why: str | None
) -> None:
    share = TenantShare(limits)
    share.refill(asked, Grant(), 10.0)
    assert refused(share, 10.5) == why
    share.refill(asked, Grant(requests=1, tokens=1, permits=1), 10.0)
    assert refused(share, 10.5) is None, "it has something"


def test_who_has_all_there_is_and_uses_it_is_refused() -> None:
    share = filled(ChatLimits(concurrency=2), permits=2)
    assert share.enter() and share.enter()
    asked = share.refill_request()
    assert asked.permits == 2
    share.refill(asked, Grant(permits=2), 5.0)
    assert refused(share, 5.9) == "Over 2 requests at once." and refused(share, 6.0) is None


def test_what_flows_in_while_the_account_is_away_is_lent_as_it_comes() -> None:
    both = TenantShare(ChatLimits(600, 6000))
    both.refill(both.refill_request(), Grant(), 0.0)
    both.lend(0.0)
    assert (both.requests, both.tokens) == (0, 0) and refused(both, 0.0) is not None
    both.lend(0.5)
    assert (both.requests, both.tokens) == (5, 50) and refused(both, 0.5) is None
    both.lend(0.5)
    assert (both.requests, both.tokens) == (5, 50), "the same time is lent once"
    both.lend(60.0)
    assert (both.requests, both.tokens) == (30, 300), "no more than it would hold"
    lent = both.refill_request()
    assert (lent.lent_requests, lent.lent_tokens) == (30, 300)


def test_an_account_that_was_never_asked_lends_a_minute_s_worth_and_no_more() -> None:
    share = TenantShare(ChatLimits(60, 600, 4))
    share.waiting = 100
    share.lend(1000.0)
    assert (share.requests, share.tokens, share.permits) == (60, 30, 4)
    share.lend(1000.0)
    assert share.requests == 60


@pytest.mark.parametrize(
    ("grant", "lent"),
    [
        (Grant(left_requests=60.0, left_tokens=600.0), 60),
        (Grant(left_requests=30.0, left_tokens=600.0), 30),
        (Grant(left_requests=60.0, left_tokens=150.0), 15),
    ],
)
def test_what_is_lent_is_what_the_account_had_of_the_scarcest(grant: Grant, lent: int) -> None:
    share = TenantShare(ChatLimits(60, 600))
    share.waiting = 100
    share.refill(ShareRequest(), grant, 50.0)
    share.lend(50.0)
    assert share.requests == lent


@pytest.mark.parametrize(
    ("limits", "held", "low"),
    [
        (ChatLimits(400), {"requests": 10}, False),
        (ChatLimits(400), {"requests": 9}, True),
        (ChatLimits(0, 400), {"tokens": 10}, False),
        (ChatLimits(0, 400), {"tokens": 9}, True),
        (ChatLimits(0, 0, 64), {"permits": 2}, False),
        (ChatLimits(0, 0, 64), {"permits": 1}, True),
        (ChatLimits(10, 10, 10), {"requests": 1, "tokens": 1, "permits": 1}, False),
    ],
)
def test_a_share_is_low_below_half_of_what_it_holds_ahead(
    limits: ChatLimits, held: dict[str, int], low: bool
) -> None:
    assert filled(limits, **held).low is low


@pytest.mark.parametrize("held", [{"requests": 1}, {"tokens": 1}, {"permits": 1}])
def test_a_share_that_holds_anything_is_in_use(held: dict[str, int]) -> None:
    limits = ChatLimits(600, 600, 16)
    assert TenantShare(limits).unused and not filled(limits, **held).unused
    asked, entered, lent = TenantShare(limits), TenantShare(ChatLimits()), TenantShare(ChatLimits(600))
    asked.waiting = 1
    entered.enter()
    entered.leave()
    lent.lend(0.0)
    assert not asked.unused and not entered.unused and not lent.unused
    entered.refill_request()
    assert entered.unused


def test_of_each_limit_what_is_left_is_told() -> None:
    share = TenantShare(ChatLimits(60, 600, 4))
    share.refill(ShareRequest(debt=3), Grant(tokens=10, left_requests=30.5, left_tokens=90.0), 0.0)
    told = dict(line.split(": ") for line in share.header_lines.decode().splitlines())
    assert told == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "30",
        "x-ratelimit-reset-requests": "30.000s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "103",
        "x-ratelimit-reset-tokens": "49.700s",
    }
    assert filled(ChatLimits(concurrency=4), permits=4).header_lines == b""


def test_who_need_not_wait_long_is_told_to_wait_a_moment() -> None:
    share = TenantShare(ChatLimits(6000))
    share.refill(ShareRequest(requests=1), Grant(left_requests=0.99), 0.0)
    with pytest.raises(Limited) as soon:
        share.refuse_if_exhausted(0.04)
    assert soon.value.retry_after_s == 0.05 and refused(share, 0.05) is None
