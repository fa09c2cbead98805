"""Which leases ran out: only those of gangs that were silent while somebody could have heard them."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.tasks.lease_rules import HeldTurn, LeaseWatch
from turnout.tasks.task_rules import TaskId

LEASE_S = 12.0
TURN = HeldTurn("1-0", TaskId("t"), 1)


def silent(watch: LeaseWatch, begin: float, seconds: int, turn: HeldTurn = TURN) -> list[bool]:
    """One look a second at a turn that nobody renews; what `counts` said of each that was overdue."""
    return [o.counts for s in range(seconds) for o in watch.look([turn], begin + s, begin + s)]


def test_a_gang_that_goes_silent_loses_its_lease_and_is_blamed() -> None:
    watch = LeaseWatch(LEASE_S)
    assert watch.look([], 0, 0) == []
    assert silent(watch, 1, 12) == []
    assert silent(watch, 13, 1) == [True]


def test_after_an_outage_nobody_is_reaped_for_a_lease_and_then_nobody_is_blamed() -> None:
    watch = LeaseWatch(LEASE_S)
    assert silent(watch, 0, 11) == []
    watch.interrupted()
    assert silent(watch, 500, 12) == []
    assert silent(watch, 512, 1) == [False]


def test_a_slow_answer_is_an_outage_too() -> None:
    watch = LeaseWatch(LEASE_S)
    assert silent(watch, 0, 3) == []
    assert watch.look([TURN], 3, 100) == [], "the answer took that long"
    assert silent(watch, 101, 11) == []


def test_a_gang_that_was_heard_since_the_outage_is_blamed() -> None:
    watch = LeaseWatch(LEASE_S)
    assert silent(watch, 0, 2) == []
    assert silent(watch, 2, 12, replace(TURN, renewals=2)) == []
    assert silent(watch, 14, 1, replace(TURN, renewals=2)) == [True]


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.floats(0.1, 1.5), st.sampled_from(["fine"] * 8 + ["away", "hangs"]), st.floats(0, 40)),
        min_size=20,
        max_size=120,
    ),
)
def test_no_gang_that_renews_when_it_can_is_ever_reaped(looks: list[tuple[float, str, float]]) -> None:
    """It renews every sixth of a lease while Redis answers."""
    watch, now, renewed_at, renewals = LeaseWatch(LEASE_S), 0.0, 0.0, 1
    for pause_s, redis, outage_s in looks:
        now += pause_s
        asked_at = now
        if redis == "hangs":
            now += outage_s
        elif redis == "away":
            now += outage_s
            watch.interrupted()
            continue
        # After an outage the gang needs a sixth to give up its last try, and a sixth until the next.
        if now - renewed_at >= LEASE_S / 6 and redis == "fine":
            renewed_at, renewals = now, renewals + 1
        assert watch.look([HeldTurn("1-0", TaskId("t"), renewals)], asked_at, now) == []
