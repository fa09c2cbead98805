"""What a command makes of the fleet: the replica as it is wanted, and newer orders for its worker."""

from dataclasses import replace
from typing import Any

import pytest

from turnout.fleet.core_rules import apply
from turnout.fleet.events_and_commands import (
    Blame,
    Close,
    Command,
    ForgetReplica,
    GiveUp,
    Reopen,
    SetWant,
    StartReplica,
    TakeUp,
)
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, Want
from turnout.fleet.worker_rules import Worker

NOW = 1000.0
M = Model("m", EngineKind.VLLM, "w", Needs(1, 80, 0, 5))
WORKER = Worker(WorkerId("w-1"), Machine((), 0, 0), "http://a", 999.0, version=7)
IDLE = replace(WORKER, id=WorkerId("w-2"))
ID = ReplicaId("r")
READY = Replica(
    ID, "m", WORKER.id, (0,), M.needs, Want.READY, Phase.READY, 0.0, 900.0, 900.0, M, ordered=3, ordered_at=900.0, ready_at=900.0
)  # fmt: skip
CLOSED = replace(READY, closing=Closing(990.0, Want.GONE, "idle"))
ASLEEP = replace(READY, want=Want.ASLEEP, phase=Phase.SLEEPING)
FAILED = {"m": Failures(1, "x", 9.0), "n": Failures(1, "x", 9.0)}
ORDERED: dict[str, Any] = {"ordered": 8, "ordered_at": NOW}


def fleet(one: Replica | None) -> Fleet:
    workers = {w.id: w for w in (WORKER, IDLE)}
    return Fleet(
        {"m": M}, workers, {} if one is None else {one.id: one}, failures=FAILED, given_up={"m": GivenUp("x")}
    )


@pytest.mark.parametrize(
    ("before", "command", "changed"),
    [
        (READY, SetWant(ID, Want.ASLEEP, "idle"), {"want": Want.ASLEEP, **ORDERED}),
        (CLOSED, SetWant(ID, Want.ASLEEP, "idle"), {"want": Want.ASLEEP, **ORDERED}),
        (CLOSED, SetWant(ID, Want.GONE, "idle"), {"want": Want.GONE, "closing": None, **ORDERED}),
        (
            ASLEEP,
            SetWant(ID, Want.READY, "asked for"),
            {"want": Want.READY, "phase_since": NOW, "ready_at": None, **ORDERED},
        ),
        (ASLEEP, SetWant(ID, Want.GONE, "x"), {"want": Want.GONE, "needs": Needs(1, 5, 0, 5), **ORDERED}),
        (READY, Close(ID, Want.ASLEEP, "room", "b"), {"closing": Closing(NOW, Want.ASLEEP, "room", "b")}),
        (CLOSED, Reopen(ID), {"closing": None}),
    ],
)
def test_a_replica_is_as_it_is_wanted_and_its_worker_is_told(
    before: Replica, command: Command, changed: dict[str, Any]
) -> None:
    after = apply(fleet(before), [command], NOW)
    assert after.replicas == {ID: replace(before, **changed)}
    assert after.workers == {WORKER.id: replace(WORKER, version=8), IDLE.id: IDLE}
    ready_leaves = isinstance(command, SetWant) and before.phase is Phase.READY
    assert after.failures.keys() == ({"n"} if ready_leaves else {"m", "n"}), "who left in order begins anew"


def test_a_new_replica_is_starting_until_its_worker_has_the_orders() -> None:
    after = apply(fleet(None), [StartReplica(ID, "m", WORKER.id, (0, 1), M.needs, "request")], NOW)
    assert after.replicas == {
        ID: Replica(
            ID, "m", WORKER.id, (0, 1), M.needs, Want.READY, Phase.STARTING, NOW, NOW, NOW, M, ordered=8, ordered_at=NOW
        )
    }  # fmt: skip
    assert after.workers[WORKER.id].version == 8


def test_where_one_is_forgotten_nothing_is_placed_before_the_worker_knows() -> None:
    after = apply(fleet(READY), [ForgetReplica(ID, "its worker is gone")], NOW)
    told = replace(WORKER, version=8, hold=8, freed_at=NOW)
    assert (after.replicas, after.workers[WORKER.id]) == ({}, told) and not told.settled
    away = replace(fleet(READY), workers={})
    assert apply(away, [ForgetReplica(ID, "its worker is gone")], NOW).replicas == {}


def test_several_commands_for_one_worker_are_one_change_of_its_orders() -> None:
    commands = [
        SetWant(ID, Want.GONE, "x"),
        StartReplica(ReplicaId("s"), "m", WORKER.id, (), M.needs, "load"),
    ]
    assert apply(fleet(READY), commands, NOW).workers[WORKER.id].version == 8
    unchanged = fleet(READY)
    assert apply(unchanged, [], NOW) is unchanged


def test_what_a_model_is_blamed_for_is_remembered_until_it_is_taken_up() -> None:
    blamed = apply(fleet(None), [Blame("m", 3, "no memory", 50.0), GiveUp("n", "hopeless", None)], NOW)
    assert blamed.failures["m"] == Failures(3, "no memory", 50.0)
    assert blamed.given_up == {"m": GivenUp("x"), "n": GivenUp("hopeless")}
    assert blamed.workers == fleet(None).workers
    assert apply(blamed, [TakeUp("m"), TakeUp("never")], NOW).given_up == {"n": GivenUp("hopeless")}
