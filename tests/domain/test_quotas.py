"""A gateway's purse: what it asks for, what it gives back, and that nothing enters past a limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.domain.errors import Limited
from turnout.domain.quotas import ChatLimits, Grant, ShareRequest, TenantShare


def filled(limits: ChatLimits, **grant: int) -> TenantShare:
    purse = TenantShare(limits)
    purse.waiting = 1
    purse.absorb(purse.wish(), Grant(**grant), 0.0)
    purse.waiting = 0
    return purse


def test_without_limits_everything_enters() -> None:
    purse = TenantShare(ChatLimits())
    assert all(purse.enter() for _ in range(1000))
    assert not purse.low
    assert purse.header_lines == b""


def test_a_purse_asks_for_a_share_and_for_those_who_wait() -> None:
    purse = TenantShare(ChatLimits(600, 60_000, 32))
    purse.waiting = 3
    assert not purse.enter()
    assert purse.wish() == ShareRequest(requests=33, tokens=3000, debt=0, slots=5)


def test_an_idle_purse_gives_everything_back_and_can_be_forgotten() -> None:
    purse = filled(ChatLimits(600, 60_000, 32), requests=30, tokens=3000, slots=3)
    assert purse.enter()
    purse.leave(100)
    purse.wish()  # somebody came since the last look
    purse.absorb(ShareRequest(), Grant(slots=3), 0.0)
    wish = purse.wish()
    assert wish == ShareRequest(requests=-29, tokens=-2900, slots=0)
    assert not purse.enter(), "what was given back is not used once more"
    purse.absorb(wish, Grant(), 0.0)
    assert purse.forgettable


def test_tokens_are_paid_when_they_are_known_and_debt_stops_the_next_request() -> None:
    purse = filled(ChatLimits(tokens_per_minute=1000), tokens=50)
    assert purse.enter()
    assert purse.enter()
    purse.leave(400)
    assert not purse.enter()
    wish = purse.wish()
    assert (wish.debt, wish.tokens) == (350, 50)
    purse.absorb(wish, Grant(tokens=0, left_tokens=-100.0), now=10.0)
    with pytest.raises(Limited) as refused:
        purse.refuse_if_dry(10.5)
    assert refused.value.retry_after_s == pytest.approx(101 / (1000 / 60))
    purse.refuse_if_dry(11.5)  # others may have given something back: look again


def test_a_request_that_goes_elsewhere_keeps_its_slot_and_is_not_counted_twice() -> None:
    purse = filled(ChatLimits(600, 0, 4), requests=1, slots=1)
    assert purse.enter()
    purse.leave()
    purse.stay()
    assert (purse.running, purse.requests) == (1, 0)


def test_a_purse_whose_requests_only_wait_does_not_take_its_account_for_empty() -> None:
    purse = filled(ChatLimits(concurrency=500), slots=32)
    assert purse.enter()
    purse.absorb(purse.wish(), Grant(slots=32), 0.0)
    idle = purse.wish()  # nobody came since: nothing to spare is asked for
    assert idle.slots == 1
    purse.absorb(idle, Grant(slots=1), now=2.0)
    assert not purse.enter()
    purse.refuse_if_dry(2.1)
    purse.waiting = 1
    asked = purse.wish()
    assert asked.slots > 1
    purse.absorb(asked, Grant(slots=1), now=2.2)  # others have all the rest
    with pytest.raises(Limited):
        purse.refuse_if_dry(2.3)


@given(
    st.integers(1, 40),
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["enter", "leave", "look", "lost"])), max_size=200),
)
def test_several_gateways_never_exceed_an_account_whatever_is_lost(
    requests: int, slots: int, moves: list[tuple[int, str]]
) -> None:
    """The account here has no drip: its requests are all there will ever be."""
    limits = ChatLimits(requests, 0, slots)
    purses = [TenantShare(limits) for _ in range(3)]
    held = [0, 0, 0]
    left, entered = requests, 0
    for which, move in moves:
        purse = purses[which]
        if move == "enter":
            entered += purse.enter()
        elif move == "leave" and purse.running:
            purse.leave()
        elif move in ("look", "lost"):
            purse.waiting = 1
            wish = purse.wish()
            purse.waiting = 0
            got = max(0, min(wish.requests, left)) if wish.requests > 0 else wish.requests
            left -= got
            held[which] = max(0, min(wish.slots, slots - sum(held) + held[which]))
            if move == "look":
                purse.absorb(wish, Grant(max(0, got), 0, held[which], left, 0), 0.0)
            else:
                held[which] = max(held[which], int(purse.slots))  # it may still use what it had
        assert entered <= requests
        assert sum(p.running for p in purses) <= slots
