"""The state machine of one engine, under any order of events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.domain.serving import Phase, Want
from turnout.worker.engine_lifecycle import (
    LIVE,
    OVER,
    Act,
    Event,
    Exited,
    Faulted,
    Launched,
    Life,
    Told,
    Wanted,
    admits,
    evolve,
)

EVENTS = st.one_of(
    st.sampled_from(list(Told)),
    st.builds(Wanted, st.sampled_from(list(Want))),
    st.builds(Launched, st.booleans()),
    st.just(Faulted("it fell silent")),
    st.just(Exited("it crashed")),
)


def play(events: list[Event], life: Life | None = None) -> tuple[Life, list[Act]]:
    life, acts = life or Life(), []
    for event in events:
        life, act = evolve(life, event)
        acts += [act] if act else []
    return life, acts


@given(st.lists(EVENTS, max_size=40))
def test_any_order_of_events_keeps_the_promises(events: list[Event]) -> None:
    life, acts = Life(), []
    for event in events:
        before = life
        life, act = evolve(before, event)
        acts += [act] if act else []
        assert life.busy >= 0
        assert life.busy - before.busy in (-1, 0, 1)
        if life.busy > before.busy:
            entered = event is Told.FOUND or before.phase is Phase.READY
            assert entered, "a request entered an engine that does not serve"
        if before.phase in OVER:
            assert (life.phase, act) == (before.phase, None), "what is over stays over"
        if before.phase is Phase.STOPPING:
            assert life.phase in {Phase.STOPPING, *OVER}, "what stops is never revived"
        if act is Act.SLEEP:
            assert life.busy == 0
        if life.phase is Phase.FAILED:
            assert life.fault, "a failure says why"
        if act is not Act.STOP:
            assert life.phase in LIVE or act is None
    assert acts.count(Act.STOP) <= 1


@given(st.lists(EVENTS, max_size=30), st.sampled_from([Want.READY, Want.ASLEEP, Want.GONE]))
def test_a_well_behaved_engine_always_gets_where_it_is_wanted(events: list[Event], want: Want) -> None:
    life, _ = play(events)
    sleeper = life.can_sleep
    life, _ = play([Wanted(want), *[Told.LEFT] * life.busy], life)
    for _ in range(6):
        if life.phase is Phase.STOPPING:
            life, _ = evolve(life, Exited(""))
        elif life.phase is Phase.STARTING:
            life, _ = evolve(life, Told.SERVING)
        elif life.moving:
            life, _ = evolve(life, Told.ASLEEP)
    if life.phase not in OVER:
        expected = Phase.SLEEPING if want is Want.ASLEEP and sleeper else life.phase
        assert want is not Want.GONE
        assert life.phase is expected
        assert want is not Want.READY or life.phase is Phase.READY
        assert admits(life) is (life.phase is Phase.READY)


def test_a_request_that_comes_while_stopping_changes_nothing() -> None:
    life, _ = play([Told.SERVING, Told.ENTERED, Wanted(Want.GONE)])
    assert evolve(life, Told.ENTERED) == (life, None)
    life, _ = play([Told.LEFT, Exited("")], life)
    assert (life.phase, life.busy) == (Phase.GONE, 0)


def test_sleep_waits_for_requests_under_way_and_lets_no_more_in() -> None:
    ready, _ = play([Launched(can_sleep=True), Told.SERVING, Told.ENTERED])
    life, act = evolve(ready, Wanted(Want.ASLEEP))
    assert act is None
    assert not admits(life)
    life, act = evolve(life, Told.LEFT)
    assert act is Act.SLEEP
    assert life.phase is Phase.READY, "its memory is not free before it sleeps"
    assert evolve(life, Told.ASLEEP)[0].phase is Phase.SLEEPING


def test_a_request_found_at_an_engine_that_should_sleep_keeps_it_awake_until_it_ends() -> None:
    life, acts = play([Launched(can_sleep=True), Told.SERVING, Wanted(Want.ASLEEP), Told.FOUND, Told.STAYED])
    assert acts == [Act.SLEEP]
    assert not admits(life)
    life, act = evolve(life, Told.LEFT)
    assert act is Act.SLEEP
    life, _ = play([Told.FOUND, Told.STAYED, Wanted(Want.READY)], life)
    assert admits(life), "called off: it need not sleep first"


def test_a_request_found_while_stopping_is_counted_out_again() -> None:
    life, _ = play([Told.SERVING, Wanted(Want.GONE), Told.FOUND])
    assert (life.phase, life.busy) == (Phase.STOPPING, 1)
    assert evolve(life, Told.LEFT)[0].busy == 0


def test_wanted_again_while_falling_asleep_it_wakes_afterwards() -> None:
    life, acts = play([Launched(can_sleep=True), Told.SERVING, Wanted(Want.ASLEEP), Wanted(Want.READY)])
    assert acts == [Act.SLEEP]
    life, act = evolve(life, Told.ASLEEP)
    assert (act, life.phase) == (Act.WAKE, Phase.STARTING)


def test_an_engine_that_cannot_sleep_stays_ready() -> None:
    life, acts = play([Launched(can_sleep=False), Told.SERVING, Wanted(Want.ASLEEP)])
    assert acts == []
    assert admits(life)


@pytest.mark.parametrize("phase", sorted(LIVE))
def test_a_fault_is_a_failure_only_once_the_process_is_gone(phase: Phase) -> None:
    life, act = evolve(replace(Life(), phase=phase), Faulted("it hung"))
    assert (life.phase, act) == (Phase.STOPPING, Act.STOP)
    life, _ = evolve(life, Exited("killed"))
    assert (life.phase, life.fault) == (Phase.FAILED, "it hung")
