"""The state machine of one engine, under any order of events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.fleet.replica_rules import Phase, Want
from turnout.tenants.gpu_time_rules import GpuState
from turnout.worker.lifecycle_rules import (
    ENDED_PHASES,
    LIVE_PHASES,
    Act,
    EngineState,
    Event,
    Exited,
    Faulted,
    Holds,
    Launched,
    Notice,
    OrderRefused,
    Wanted,
    admits,
    evolve,
    held_as,
)

EVENTS = st.one_of(
    st.sampled_from(list(Notice)),
    st.builds(Wanted, st.sampled_from(list(Want))),
    st.builds(Launched, st.booleans()),
    st.just(Faulted("it fell silent")),
    st.just(Exited("it crashed")),
)


def play(events: list[Event], state: EngineState | None = None) -> tuple[EngineState, list[Act]]:
    state, acts = state or EngineState(), []
    for event in events:
        state, act = evolve(state, event)
        acts += [act] if act else []
    return state, acts


@given(st.lists(EVENTS, max_size=40))
def test_any_order_of_events_keeps_the_promises(events: list[Event]) -> None:
    state, acts = EngineState(), []
    for event in events:
        before = state
        state, act = evolve(before, event)
        acts += [act] if act else []
        assert state.busy >= 0
        assert state.busy - before.busy in (-1, 0, 1)
        if state.busy > before.busy:
            entered = event is Notice.DIRECT or before.phase is Phase.READY
            assert entered, "a request entered an engine that does not serve"
        if before.phase in ENDED_PHASES:
            assert (state.phase, act) == (before.phase, None), "what is over stays over"
        if before.phase is Phase.STOPPING:
            assert state.phase in {Phase.STOPPING, *ENDED_PHASES}, "what stops is never revived"
        if act is Act.SLEEP:
            assert state.busy == 0
        if state.phase is Phase.FAILED:
            assert state.fault, "a failure says why"
        if act is not Act.STOP:
            assert state.phase in LIVE_PHASES or act is None
    assert acts.count(Act.STOP) <= 1


@given(st.lists(EVENTS, max_size=30), st.sampled_from([Want.READY, Want.ASLEEP, Want.GONE]))
def test_a_well_behaved_engine_always_gets_where_it_is_wanted(events: list[Event], want: Want) -> None:
    state, _ = play(events)
    sleeper = state.can_sleep
    state, _ = play([Wanted(want), *[Notice.ENDED] * state.busy], state)
    for _ in range(6):
        if state.phase is Phase.STOPPING:
            state, _ = evolve(state, Exited(""))
        elif state.phase is Phase.STARTING:
            state, _ = evolve(state, Notice.SERVING)
        elif state.falling_asleep:
            state, _ = evolve(state, Notice.ASLEEP)
    if state.phase not in ENDED_PHASES:
        expected = Phase.SLEEPING if want is Want.ASLEEP and sleeper else state.phase
        assert want is not Want.GONE
        assert state.phase is expected
        assert want is not Want.READY or state.phase is Phase.READY
        assert admits(state) is (state.phase is Phase.READY)


def test_a_request_that_comes_while_stopping_changes_nothing() -> None:
    state, _ = play([Notice.SERVING, Notice.ADMITTED, Wanted(Want.GONE)])
    assert evolve(state, Notice.ADMITTED) == (state, None)
    state, _ = play([Notice.ENDED, Exited("")], state)
    assert (state.phase, state.busy) == (Phase.GONE, 0)


def test_sleep_waits_for_requests_under_way_and_lets_no_more_in() -> None:
    ready, _ = play([Launched(can_sleep=True), Notice.SERVING, Notice.ADMITTED])
    state, act = evolve(ready, Wanted(Want.ASLEEP))
    assert act is None
    assert not admits(state)
    state, act = evolve(state, Notice.ENDED)
    assert act is Act.SLEEP
    assert state.phase is Phase.READY, "its memory is not free before it sleeps"
    assert evolve(state, Notice.ASLEEP)[0].phase is Phase.SLEEPING


def test_a_request_found_at_an_engine_that_should_sleep_keeps_it_awake_until_it_ends() -> None:
    state, acts = play(
        [Launched(can_sleep=True), Notice.SERVING, Wanted(Want.ASLEEP), Notice.DIRECT, Notice.STAYED_AWAKE]
    )
    assert acts == [Act.SLEEP]
    assert not admits(state)
    state, act = evolve(state, Notice.ENDED)
    assert act is Act.SLEEP
    state, _ = play([Notice.DIRECT, Notice.STAYED_AWAKE, Wanted(Want.READY)], state)
    assert admits(state), "called off: it need not sleep first"


def test_a_request_found_while_stopping_is_counted_out_again() -> None:
    state, _ = play([Notice.SERVING, Wanted(Want.GONE), Notice.DIRECT])
    assert (state.phase, state.busy) == (Phase.STOPPING, 1)
    assert evolve(state, Notice.ENDED)[0].busy == 0


def test_wanted_again_while_falling_asleep_it_wakes_afterwards() -> None:
    state, acts = play([Launched(can_sleep=True), Notice.SERVING, Wanted(Want.ASLEEP), Wanted(Want.READY)])
    assert acts == [Act.SLEEP]
    state, act = evolve(state, Notice.ASLEEP)
    assert (act, state.phase) == (Act.WAKE, Phase.STARTING)


def test_an_engine_that_cannot_sleep_stays_ready() -> None:
    state, acts = play([Launched(can_sleep=False), Notice.SERVING, Wanted(Want.ASLEEP)])
    assert acts == []
    assert admits(state)


@pytest.mark.parametrize("phase", sorted(LIVE_PHASES))
def test_a_fault_is_a_failure_only_once_the_process_is_gone(phase: Phase) -> None:
    state, act = evolve(replace(EngineState(), phase=phase), Faulted("it hung"))
    assert (state.phase, act) == (Phase.STOPPING, Act.STOP)
    state, _ = evolve(state, Exited("killed"))
    assert (state.phase, state.fault) == (Phase.FAILED, "it hung")


def test_what_a_gang_holds_counts_as_busy_until_it_has_ended() -> None:
    ready, _ = play([Launched(False), Wanted(Want.READY)])
    assert evolve(ready, Holds(3))[0].busy == 3
    for phase in ENDED_PHASES:
        ended = replace(ready, phase=phase, busy=0)
        assert evolve(ended, Holds(3))[0].busy == 0


@pytest.mark.parametrize(
    ("phase", "idle", "busy"),
    [
        (Phase.STARTING, GpuState.LOADING, GpuState.LOADING),
        (Phase.READY, GpuState.IDLE, GpuState.BUSY),
        (Phase.STOPPING, GpuState.IDLE, GpuState.BUSY),
        (Phase.SLEEPING, GpuState.ASLEEP, GpuState.ASLEEP),
        (Phase.GONE, None, None),
        (Phase.FAILED, None, None),
    ],
)
def test_what_its_gpus_do_follows_from_its_phase(
    phase: Phase, idle: GpuState | None, busy: GpuState | None
) -> None:
    assert [held_as(EngineState(phase=phase, busy=count)) for count in (0, 2)] == [idle, busy]


STARTS, SERVES = EngineState(can_sleep=True), EngineState(phase=Phase.READY, can_sleep=True)
WORKS, SLEEPS = replace(SERVES, busy=1), replace(SERVES, phase=Phase.SLEEPING, want=Want.ASLEEP)
FALLS = replace(SERVES, want=Want.ASLEEP, falling_asleep=True)
STOPS = replace(SERVES, phase=Phase.STOPPING, want=Want.GONE)


@pytest.mark.parametrize(
    ("state", "event", "after", "act"),
    [
        (EngineState(), Launched(can_sleep=True), STARTS, None),
        (STARTS, Notice.SERVING, SERVES, None),
        (STARTS, Wanted(Want.GONE), replace(STARTS, phase=Phase.STOPPING, want=Want.GONE), Act.STOP),
        (STARTS, Wanted(Want.ASLEEP), replace(STARTS, want=Want.ASLEEP), None),
        (replace(STARTS, want=Want.ASLEEP), Notice.SERVING, FALLS, Act.SLEEP),
        (SERVES, Wanted(Want.ASLEEP), FALLS, Act.SLEEP),
        (SERVES, Notice.ADMITTED, WORKS, None),
        (WORKS, Notice.ENDED, SERVES, None),
        (WORKS, Wanted(Want.GONE), replace(STOPS, busy=1), Act.STOP),
        (WORKS, Exited("it crashed"), replace(WORKS, phase=Phase.FAILED, fault="it crashed"), None),
        (FALLS, Notice.ASLEEP, SLEEPS, None),
        (FALLS, Notice.DIRECT, replace(FALLS, busy=1), None),
        (replace(FALLS, busy=1), Notice.STAYED_AWAKE, replace(FALLS, busy=1, falling_asleep=False), None),
        (FALLS, Wanted(Want.GONE), STOPS, Act.STOP),
        (FALLS, Faulted("it hung"), replace(STOPS, want=Want.ASLEEP, fault="it hung"), Act.STOP),
        (FALLS, Exited("it crashed"), replace(FALLS, phase=Phase.FAILED, falling_asleep=False, fault="it crashed"), None),
        (SLEEPS, Wanted(Want.READY), STARTS, Act.WAKE),
        (SLEEPS, Wanted(Want.GONE), STOPS, Act.STOP),
        (SLEEPS, Notice.DIRECT, replace(SLEEPS, busy=1), None),
        (STARTS, OrderRefused("no such weights"), replace(STARTS, phase=Phase.FAILED, fault="no such weights", refused=True), None),
        (STARTS, Holds(2), replace(STARTS, busy=2), None),
        (STOPS, Holds(2), replace(STOPS, busy=2), None),
        (STOPS, Exited("told to"), replace(STOPS, phase=Phase.GONE), None),
        (replace(STOPS, fault="it hung"), Exited("told to"), replace(STOPS, phase=Phase.FAILED, fault="it hung"), None),
    ],
)  # fmt: skip
def test_each_event_moves_an_engine_one_step(
    state: EngineState, event: Event, after: EngineState, act: Act | None
) -> None:
    assert evolve(state, event) == (after, act)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (SERVES, Notice.SERVING),
        (SERVES, Notice.ASLEEP),
        (SERVES, Notice.ENDED),
        (SERVES, Notice.STAYED_AWAKE),
        (SERVES, OrderRefused("late")),
        (STARTS, Notice.ADMITTED),
        (FALLS, Notice.ADMITTED),
        (FALLS, Notice.STAYED_AWAKE),
        (SLEEPS, Notice.ADMITTED),
        (SLEEPS, Notice.SERVING),
        (STOPS, Wanted(Want.READY)),
        (STOPS, Faulted("late")),
        (STOPS, Notice.SERVING),
        *((replace(STOPS, phase=phase), event) for phase in ENDED_PHASES for event in (Notice.DIRECT, Exited("again"), Holds(1))),
    ],
)  # fmt: skip
def test_what_comes_late_or_twice_moves_no_engine(state: EngineState, event: Event) -> None:
    assert evolve(state, event) == (state, None)
