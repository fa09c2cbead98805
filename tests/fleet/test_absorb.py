"""What the manager makes of what it hears: workers, models and demand, late, twice or out of order."""

from dataclasses import replace
from typing import Any

import pytest

from turnout.fleet.core_rules import absorb
from turnout.fleet.events_and_commands import (
    DemandSeen,
    Event,
    ModelRemoved,
    ModelSet,
    Tick,
    WorkerDraining,
    WorkerHeard,
    WorkerRemoved,
)
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp, ModelPressure, Rules
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.replica_rules import Phase, Replica, ReplicaId, ReplicaReport, Want
from turnout.fleet.route_rules import Demand
from turnout.fleet.worker_rules import DrainedBy, OrderRefusal, Standing, Worker

NOW = 1000.0
W1 = WorkerId("w-1")
MACHINE = Machine((), 1, 1)
M = Model("m", EngineKind.VLLM, "w")
ID = ReplicaId("r")
WORKER = Worker(W1, MACHINE, "http://a", 990.0, seq=5, seen=7, version=7, name="box")
REPLICA = Replica(
    ID, "m", W1, (), M.needs, Want.READY, Phase.STARTING, 900.0, 960.0, 900.0, M, ordered=7, ordered_at=960.0, heard=True
)  # fmt: skip


def beat(seq: int = 6, seen: int = 7, *reports: ReplicaReport, **fields: Any) -> WorkerHeard:
    return replace(WorkerHeard(W1, "http://a", MACHINE, reports, seq, seen, "box"), **fields)


def fleet(worker: Worker | None = WORKER, *replicas: Replica, **more: Any) -> Fleet:
    given = {
        "models": {"m": M},
        "workers": {} if worker is None else {W1: worker},
        "replicas": {r.id: r for r in replicas},
    }
    return Fleet(**{**given, **more})


def after(before: Fleet, *events: Event) -> Fleet:
    return absorb(before, events, NOW)


def heard(before: Fleet, event: WorkerHeard) -> Worker:
    return after(before, event).workers[W1]


@pytest.mark.parametrize("seq", [4, 5])
def test_a_heartbeat_that_is_late_or_comes_twice_changes_nothing(seq: int) -> None:
    assert after(fleet(), beat(seq, url="http://late")) == after(fleet(), Tick())


@pytest.mark.parametrize(
    ("old", "seen", "version", "counts_as"),
    [
        (WORKER, 6, 7, 6),
        (WORKER, 7, 7, 7),
        (WORKER, 8, 9, 0),
        (None, 0, 1, 0),
        (None, 1, 2, 0),
        (None, 9, 10, 0),
    ],
)
def test_orders_are_always_newer_than_what_a_worker_has(
    old: Worker | None, seen: int, version: int, counts_as: int
) -> None:
    one = heard(fleet(old), beat(6, seen))
    assert (one.version, one.seen, one.heard_at, one.seq) == (version, counts_as, NOW, 6)


def test_what_a_worker_says_of_itself_is_kept_and_what_it_does_not_say_is_what_it_was() -> None:
    known = replace(
        WORKER, hold=6, freed_at=900.0, drained_by=frozenset({DrainedBy.ADMIN}), standing=Standing.GONE,
        refusals={"m": OrderRefusal("x", NOW + 1), "old": OrderRefusal("x", NOW)},
    )  # fmt: skip
    machine = replace(MACHINE, cpus=8)
    one = heard(fleet(known), beat(url="http://b", machine=machine, name=""))
    assert one == replace(
        known, seq=6, heard_at=NOW, url="http://b", machine=machine, standing=Standing.ALIVE,
        refusals={"m": OrderRefusal("x", NOW + 1)},
    )  # fmt: skip
    assert heard(fleet(known), beat(seen=0)).refusals == {}, "it began anew, perhaps with other settings"
    assert heard(fleet(None), beat(name="")).name == ""
    ends = heard(fleet(), beat(leaving=True))
    assert ends.leaving and not heard(fleet(ends), beat(7)).leaving


def test_replicas_that_are_not_its_own_are_strangers_until_they_are_gone() -> None:
    others = [ReplicaReport(ReplicaId(f"x-{phase}"), phase) for phase in Phase]
    one = heard(fleet(WORKER, REPLICA), beat(6, 7, ReplicaReport(ID, Phase.STARTING), *others))
    assert one.strangers == {f"x-{p}" for p in (Phase.STARTING, Phase.READY, Phase.SLEEPING, Phase.STOPPING)}
    assert one.reports.keys() == {ID, *(report.id for report in others)}


def test_one_that_became_ready_tells_how_long_it_took_and_relieves_its_model() -> None:
    before = fleet(
        WORKER,
        REPLICA,
        wake_s={"m": 9.0},
        pace={"m": ModelPressure(1.0, 2.0, 3.0), "gone": ModelPressure(1.0)},
    )
    found = after(before, beat(6, 7, ReplicaReport(ID, Phase.READY)))
    assert found.wake_s == {"m": 40.0} and found.pace == {"m": ModelPressure(1.0, None, 3.0)}
    assert found.replicas[ID].phase is Phase.READY and found.workers[W1].version == 7
    again = absorb(found, [beat(7, 7, ReplicaReport(ID, Phase.READY, busy=1))], NOW + 50)
    assert again.wake_s == {"m": 40.0}, "it was ready before"


@pytest.mark.parametrize(
    ("want", "report", "version", "hold", "refusal"),
    [
        (Want.GONE, None, 8, 0, None),
        (Want.READY, None, 8, 8, None),
        (Want.GONE, ReplicaReport(ID, Phase.GONE), 8, 0, None),
        (Want.GONE, ReplicaReport(ID, Phase.FAILED, detail="x", refused=True), 8, 0, None),
        (
            Want.READY,
            ReplicaReport(ID, Phase.FAILED, detail="no", refused=True),
            8,
            8,
            OrderRefusal("no", NOW + 300),
        ),
    ],
)
def test_one_that_left_makes_room_and_is_not_ordered_again_by_mistake(
    want: Want, report: ReplicaReport | None, version: int, hold: int, refusal: OrderRefusal | None
) -> None:
    found = after(fleet(WORKER, replace(REPLICA, want=want)), beat(6, 7, *([report] if report else [])))
    one = found.workers[W1]
    assert found.replicas == {} and (one.version, one.hold, one.freed_at) == (version, hold, NOW)
    assert one.refusals == ({} if refusal is None else {"m": refusal})


def test_one_that_was_never_started_is_the_worker_s_fault_unless_it_ends() -> None:
    unheard = replace(REPLICA, heard=False, ordered_at=NOW - 5)
    assert heard(fleet(WORKER, unheard), beat()).refusals == {
        "m": OrderRefusal("it did not start it", NOW + 300, told=False)
    }
    assert heard(fleet(WORKER, unheard), beat(leaving=True)).refusals == {}
    early = fleet(WORKER, replace(unheard, ordered_at=NOW - 4.9))
    assert heard(early, beat()).refusals == {} and ID in after(early, beat()).replicas


def test_memory_of_one_that_fell_asleep_is_being_freed() -> None:
    falls = replace(REPLICA, want=Want.ASLEEP, phase=Phase.READY)
    one = heard(fleet(WORKER, falls), beat(6, 7, ReplicaReport(ID, Phase.SLEEPING)))
    assert (one.freed_at, one.version) == (NOW, 7)
    slept = heard(
        fleet(WORKER, replace(falls, phase=Phase.SLEEPING)),
        beat(6, 7, ReplicaReport(ID, Phase.SLEEPING, busy=0)),
    )
    assert slept.freed_at == WORKER.freed_at


def test_a_worker_that_is_silent_is_suspected_gone_and_forgotten() -> None:
    rules = Rules(suspect_s=6.0, gone_s=20.0, forget_s=3600.0)

    def standing(silent_s: float, was: Standing = Standing.ALIVE) -> Standing | None:
        one = replace(WORKER, heard_at=NOW - silent_s, standing=was)
        found = after(fleet(one, rules=rules), Tick()).workers.get(W1)
        return found and found.standing

    told = [standing(s) for s in (5.9, 6.0, 19.9, 20.0, 3599.9, 3600.0)]
    assert told == [Standing.ALIVE, Standing.SUSPECT, Standing.SUSPECT, Standing.GONE, Standing.GONE, None]
    assert standing(1.0, Standing.SUSPECT) is Standing.ALIVE
    patient = replace(rules, suspect_s=float("inf"))
    silent = replace(WORKER, heard_at=0.0)
    assert after(fleet(silent, rules=patient), Tick()).workers == {W1: silent}


def test_admins_drain_and_remove_workers_that_are_known() -> None:
    drained = after(fleet(), WorkerDraining(W1, True))
    assert drained.workers[W1].drained_by == {DrainedBy.ADMIN}
    assert not after(drained, WorkerDraining(W1, False)).workers[W1].draining
    assert after(fleet(None), WorkerDraining(W1, True), WorkerRemoved(W1)).workers == {}
    removed = after(fleet(WORKER, REPLICA), WorkerRemoved(W1))
    assert removed.workers == {} and removed.replicas == {ID: REPLICA}, "it is forgotten in order"


def test_a_model_that_was_changed_may_be_taken_by_who_refused_it() -> None:
    refuses = replace(WORKER, refusals={"m": OrderRefusal("x", NOW + 9), "n": OrderRefusal("x", NOW + 9)})
    changed = replace(M, concurrency=1)
    found = after(fleet(refuses), ModelSet(changed))
    assert found.models == {"m": changed} and found.workers[W1].refusals.keys() == {"n"}


def test_of_a_model_that_was_removed_nothing_is_kept() -> None:
    known = {
        "demand": {"m": Demand(1, 0, 1.0)},
        "pace": {"m": ModelPressure(1.0)},
        "failures": {"m": Failures(1, "x", 9.0)},
        "given_up": {"m": GivenUp("x")},
        "wake_s": {"m": 9.0},
    }
    found = after(fleet(**known), ModelRemoved("m"), ModelRemoved("never there"))
    assert (found.models, found.demand, found.pace, found.failures, found.given_up, found.wake_s) == ({},) * 6
    kept = after(fleet(**known), Tick())
    assert all(getattr(kept, name) == value for name, value in known.items()) and kept.at == NOW


def test_demand_is_the_newest_that_was_seen_and_of_known_models() -> None:
    before = fleet(demand={"m": Demand(5, 5, 90.0)})
    seen = DemandSeen({"m": Demand(1, 2, 80.0, stop=True), "unknown": Demand(1, 0, 80.0)})
    assert after(before, seen).demand == {"m": Demand(1, 2, 90.0, stop=True)}
    assert after(fleet(), seen).demand == {"m": Demand(1, 2, 80.0, stop=True)}
    assert after(before, DemandSeen({"m": Demand(0, 0, 95.0)})).demand == {"m": Demand(0, 0, 95.0)}


@pytest.mark.parametrize(
    ("phase", "ready_for_s", "failed_s_ago", "forgiven"),
    [
        (Phase.READY, 60.0, 60.0, True),
        (Phase.READY, 59.9, 90.0, False),
        (Phase.READY, 600.0, 599.0, False),
        (Phase.SLEEPING, 60.0, 90.0, False),
        (Phase.STARTING, None, 90.0, False),
    ],
)
def test_whoever_came_up_after_a_failure_and_was_ready_for_long_ends_the_row(
    phase: Phase, ready_for_s: float | None, failed_s_ago: float, forgiven: bool
) -> None:
    """Also one that goes with its worker, and so is never said to have failed or left in order. One that was ready before does
    not: beside it another may fail again and again."""
    ready_at = None if ready_for_s is None else NOW - ready_for_s
    one, failures = (
        replace(REPLICA, phase=phase, ready_at=ready_at),
        Failures(2, "killed", NOW - failed_s_ago),
    )
    found = after(fleet(WORKER, one, failures={"m": failures}), WorkerRemoved(W1))
    assert found.failures == ({} if forgiven else {"m": failures})
