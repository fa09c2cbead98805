"""What a replica's own state asks for: failures, time-outs, closing, leaving."""

from dataclasses import replace
from typing import Any

import pytest

from turnout.fleet.events_and_commands import Blame, Close, Command, ForgetReplica, GiveUp, SetWant, TakeUp
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp, Rules
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Scaling
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, Want
from turnout.fleet.tend_rules import leave, tend
from turnout.fleet.worker_rules import DrainedBy, Standing, Worker

NOW = 1000.0
RULES = Rules(backoff_s=5.0, max_failures=3)
SCALING = Scaling(load_timeout_s=60.0, asleep_s=600.0)
M = Model("m", EngineKind.VLLM, "w", scaling=SCALING)
OTHER = replace(M, weights="other")
W1 = Worker(WorkerId("w-1"), Machine((), 0, 0), "http://a", NOW)
ID = ReplicaId("m-1")


def replica(number: int = 1, **fields: Any) -> Replica:
    made = Replica(
        ReplicaId(f"m-{number}"), "m", W1.id, (), M.needs, Want.READY, Phase.READY, 0.0, NOW, NOW, M, ready_at=NOW, ordered_at=NOW
    )  # fmt: skip
    return replace(made, **fields)


def tended(
    *replicas: Replica, worker: Worker | None = W1, model: Model | None = M, **more: Any
) -> list[Command]:
    fleet = Fleet(
        {} if model is None else {"m": model},
        {} if worker is None else {worker.id: worker},
        {r.id: r for r in replicas},
        rules=RULES,
        **more,
    )
    return tend(fleet, NOW)


def gone(reason: str, number: int = 1) -> SetWant:
    return SetWant(ReplicaId(f"m-{number}"), Want.GONE, reason)


SUSPECT, GONE = replace(W1, standing=Standing.SUSPECT), replace(W1, standing=Standing.GONE)
DRAINED, ENDS = W1.drained(DrainedBy.ADMIN, True), W1.drained(DrainedBy.ITSELF, True)
STARTING = replica(phase=Phase.STARTING, phase_since=NOW - 60, ready_at=None)
ASLEEP = replica(want=Want.ASLEEP, phase=Phase.SLEEPING)
CLOSING = Closing(NOW - 1, Want.GONE, "idle")
TO_SLEEP = replace(CLOSING, then=Want.ASLEEP)


@pytest.mark.parametrize(
    ("one", "worker", "model", "commands"),
    [
        (replica(), W1, M, []),
        (replica(), None, M, [ForgetReplica(ID, "its worker is gone")]),
        (replica(), GONE, M, [ForgetReplica(ID, "its worker is gone")]),
        (replica(), SUSPECT, M, []),
        # It is told to leave: at once where nothing is under way, or else it is closed first.
        (replica(), W1, None, [Close(ID, Want.GONE, "the model was removed")]),
        (replica(phase=Phase.STARTING), W1, None, [gone("the model was removed")]),
        (replica(phase=Phase.STARTING, busy=1), W1, None, [Close(ID, Want.GONE, "the model was removed")]),
        (replica(), DRAINED, M, [Close(ID, Want.GONE, "its worker drains")]),
        (replica(phase=Phase.STOPPING), W1, M, [gone("its worker stops it")]),
        (replica(phase=Phase.STOPPING, busy=1), W1, M, []),
        (replica(), W1, OTHER, [Close(ID, Want.GONE, "the model was changed")]),
        (replica(), W1, replace(M, scaling=Scaling()), []),
        # Asleep, and falling asleep.
        (replace(ASLEEP, phase_since=NOW - 600), W1, M, [gone("asleep for 600 s")]),
        (replace(ASLEEP, phase_since=NOW - 599), W1, M, []),
        (replica(want=Want.ASLEEP, ordered_at=NOW - 60), W1, M, [gone("it did not fall asleep in 60 s")]),
        (replica(want=Want.ASLEEP, ordered_at=NOW - 59), W1, M, []),
        (replica(want=Want.ASLEEP, ordered_at=NOW - 60, busy=1), W1, M, []),
        # Closed: it is stopped when its worker has reported it idle a second later.
        (replica(closing=CLOSING), W1, M, [gone("idle")]),
        (replica(closing=CLOSING), replace(W1, heard_at=NOW - 0.1), M, []),
        (replica(closing=CLOSING, busy=1), W1, M, []),
        (replica(closing=CLOSING, phase=Phase.STOPPING), replace(W1, heard_at=0.0), M, [gone("idle")]),
        (replica(closing=CLOSING, phase=Phase.STOPPING, busy=1), W1, M, []),
        (replica(closing=TO_SLEEP), W1, M, [SetWant(ID, Want.ASLEEP, "idle")]),
        (replica(closing=TO_SLEEP), DRAINED, M, [gone("idle")]),
        (replica(closing=TO_SLEEP), W1, None, [gone("idle")]),
        (replica(closing=TO_SLEEP, want=Want.ASLEEP, ordered_at=NOW - 60), W1, M, [gone("it did not fall asleep in 60 s")]),
        # It should be gone, and is not yet.
        (replica(want=Want.GONE), DRAINED, None, []),
        (replica(want=Want.GONE, phase=Phase.FAILED, phase_since=NOW - 10), W1, M, [ForgetReplica(ID, "it failed")]),
        (replica(want=Want.GONE, phase=Phase.FAILED, phase_since=NOW - 9), W1, M, []),
        (replica(want=Want.GONE, phase_since=NOW - 99), W1, M, []),
    ],
)  # fmt: skip
def test_what_becomes_of_a_replica(
    one: Replica, worker: Worker | None, model: Model | None, commands: list[Command]
) -> None:
    assert tended(one, worker=worker, model=model) == commands


FAILED = replica(phase=Phase.FAILED, detail="no memory", ready_at=None)


@pytest.mark.parametrize(
    ("one", "problem"),
    [
        (FAILED, "no memory"),
        (replace(FAILED, detail=""), "it failed"),
        (STARTING, "it was not ready after 60 s"),
        (replace(STARTING, phase=Phase.SLEEPING), "it was not ready after 60 s"),
    ],
)
def test_a_failure_is_the_model_s_where_its_worker_can_tell(one: Replica, problem: str) -> None:
    assert tended(one) == [gone(problem), Blame("m", 1, problem, NOW + 5)]
    assert tended(one, model=None)[:1] == [gone(problem)] and len(tended(one, model=None)) == 1
    for elsewhere in (SUSPECT, ENDS):
        assert not [c for c in tended(one, worker=elsewhere) if isinstance(c, Blame)]
    assert tended(one, worker=DRAINED) == [gone(problem), Blame("m", 1, problem, NOW + 5)]


def test_a_start_has_its_time() -> None:
    assert tended(replace(STARTING, phase_since=NOW - 59.9)) == []
    assert tended(replace(STARTING, want=Want.GONE)) == []


@pytest.mark.parametrize(
    ("before", "ready_for_s", "count", "retry_s"),
    [
        (0, None, 1, 5.0),
        (0, 1.0, 1, 0.0),
        (1, None, 2, 10.0),
        (1, 1.0, 2, 10.0),
        (1, 59.9, 2, 10.0),
        (1, 60.0, 1, 0.0),
        (2, None, 3, 20.0),
        (4, None, 5, 80.0),
    ],
)
def test_failures_in_a_row_are_counted_and_what_was_healthy_begins_anew(
    before: int, ready_for_s: float | None, count: int, retry_s: float
) -> None:
    ready_at = None if ready_for_s is None else NOW - ready_for_s
    failures = {"m": Failures(before, "x", 0.0)} if before else {}
    commands = tended(replace(FAILED, ready_at=ready_at), failures=failures)
    told = [gone("no memory"), Blame("m", count, "no memory", NOW + retry_s)]
    hopeless = f"it failed {count} times in a row; the last time: no memory"
    assert commands == told + ([GiveUp("m", hopeless, NOW + retry_s)] if count >= 3 else [])


def test_several_that_fail_at_once_are_one_failure() -> None:
    commands = tended(FAILED, replace(FAILED, id=ReplicaId("m-2"), detail="the second"))
    assert commands == [gone("no memory"), gone("the second", 2), Blame("m", 1, "the second", NOW + 5)]


def test_of_those_that_are_outdated_one_leaves_at_a_time() -> None:
    first, second = replica(1), replica(2)
    one = Close(first.id, Want.GONE, "the model was changed")
    assert tended(first, second, model=OTHER) == [one]
    comes = replica(3, phase=Phase.STARTING, spec=OTHER)
    leaves = replica(3, want=Want.GONE)
    for busy_with in (comes, leaves):
        assert tended(first, second, busy_with, model=OTHER) == []


def test_a_model_that_was_given_up_is_taken_up_again_when_its_time_comes() -> None:
    given_up = {"now": GivenUp("x", NOW), "later": GivenUp("x", NOW + 1), "never": GivenUp("x")}
    assert tended(given_up=given_up) == [TakeUp("now")]


def test_one_leaves_for_another_and_may_sleep_meanwhile() -> None:
    assert leave(replica(), "room for b", Want.ASLEEP, "b") == Close(ID, Want.ASLEEP, "room for b", "b")
    assert leave(STARTING, "room for b", Want.ASLEEP, "b") == gone("room for b")
