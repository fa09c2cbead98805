"""What a worker's report makes of one replica: which reports are believed, and what they move."""

from dataclasses import replace
from typing import Any

import pytest

from turnout.fleet.fleet_rules import evolve, same_engine
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Scaling, Version
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, ReplicaReport, Want
from turnout.fleet.worker_rules import DrainedBy, Worker

NOW = 1000.0
M = Model("m", EngineKind.VLLM, "w")
ID = ReplicaId("m-1")
TOLD = Worker(WorkerId("w-1"), Machine((), 0, 0), "http://a", NOW, seen=7, version=7)
UNTOLD, AHEAD = replace(TOLD, seen=6), replace(TOLD, seen=8)
ENDS = TOLD.drained(DrainedBy.ITSELF, True)
READY = Replica(
    ID, "m", TOLD.id, (), M.needs, Want.READY, Phase.READY, 0.0, 100.0, 900.0, M,
    ordered=7, ordered_at=990.0, ready_at=100.0, heard=True, address="h:1",
)  # fmt: skip
STARTING = replace(READY, phase=Phase.STARTING, ready_at=None, heard=False, address=None)
ASLEEP = replace(READY, want=Want.ASLEEP, phase=Phase.SLEEPING)
GONE = replace(READY, want=Want.GONE)


def said(phase: Phase, **fields: Any) -> ReplicaReport:
    return ReplicaReport(ID, phase, **{"address": "h:1", **fields})


def after(before: Replica, report: ReplicaReport | None, worker: Worker = TOLD) -> Replica | None:
    return evolve(before, report, worker, NOW, 5.0)


@pytest.mark.parametrize(
    ("before", "report", "worker"),
    [
        (READY, said(Phase.READY), TOLD),
        (ASLEEP, said(Phase.READY), TOLD),  # its memory was given away: only the manager wakes it
        (ASLEEP, said(Phase.STARTING), TOLD),
        (replace(READY, want=Want.ASLEEP), said(Phase.SLEEPING), UNTOLD),  # an earlier sleep
        (replace(READY, want=Want.ASLEEP), said(Phase.SLEEPING), AHEAD),
        (STARTING, None, UNTOLD),
        (STARTING, None, AHEAD),
        (replace(STARTING, ordered_at=995.1), None, TOLD),
        (replace(GONE, heard=False), None, UNTOLD),
    ],
)
def test_what_says_nothing_new_changes_nothing(
    before: Replica, report: ReplicaReport | None, worker: Worker
) -> None:
    assert after(before, report, worker) is before


@pytest.mark.parametrize(
    ("before", "report", "worker"),
    [
        (READY, None, TOLD),  # its worker restarted and lost it
        (READY, None, UNTOLD),
        (STARTING, None, ENDS),
        (replace(STARTING, ordered_at=995.0), None, TOLD),
        (replace(GONE, heard=False, ordered_at=999.0), None, TOLD),
        (GONE, said(Phase.GONE), TOLD),
        (GONE, said(Phase.FAILED), UNTOLD),
        (READY, said(Phase.GONE), ENDS),
        (STARTING, said(Phase.FAILED), ENDS),
        (STARTING, said(Phase.FAILED, refused=True), TOLD),
    ],
)
def test_one_that_left_is_forgotten(before: Replica, report: ReplicaReport | None, worker: Worker) -> None:
    assert after(before, report, worker) is None


@pytest.mark.parametrize(
    ("before", "report", "changed"),
    [
        (STARTING, said(Phase.STARTING, address=None, detail="40 %"), {"heard": True, "detail": "40 %"}),
        (STARTING, said(Phase.STARTING, address=None), {"heard": True}),
        (
            STARTING,
            said(Phase.READY),
            {"heard": True, "phase": Phase.READY, "phase_since": NOW, "ready_at": NOW, "address": "h:1"},
        ),
        (READY, said(Phase.READY, address="h:2"), {"address": "h:2"}),
        (READY, said(Phase.READY, busy=2), {"busy": 2, "used_at": NOW}),
        (replace(READY, used_at=999.1), said(Phase.READY, busy=2), {"busy": 2}),
        (replace(READY, used_at=999.0), said(Phase.READY, busy=2), {"busy": 2, "used_at": NOW}),
        (replace(READY, busy=2), said(Phase.READY), {"busy": 0}),
        (
            replace(READY, busy=1),
            said(Phase.STOPPING, busy=1),
            {"phase": Phase.STOPPING, "phase_since": NOW, "used_at": NOW},
        ),
        (
            replace(READY, busy=1),
            said(Phase.STARTING, busy=1),
            {"phase": Phase.STARTING, "phase_since": NOW, "busy": 0, "ready_at": None},
        ),
        (READY, said(Phase.SLEEPING), {"phase": Phase.SLEEPING, "phase_since": NOW}),
        (
            replace(READY, phase=Phase.SLEEPING),
            said(Phase.READY),
            {"phase": Phase.READY, "phase_since": NOW, "ready_at": NOW},
        ),
        (READY, said(Phase.FAILED, detail="no memory"), {"phase": Phase.FAILED, "phase_since": NOW, "detail": "no memory"}),
        (READY, said(Phase.GONE), {"phase": Phase.FAILED, "phase_since": NOW, "detail": "it ended by itself"}),
        (READY, said(Phase.GONE, detail="killed"), {"phase": Phase.FAILED, "phase_since": NOW, "detail": "killed"}),
        (GONE, said(Phase.STOPPING), {"phase": Phase.STOPPING, "phase_since": NOW}),
    ],
)  # fmt: skip
def test_what_a_worker_says_of_a_replica_is_so(
    before: Replica, report: ReplicaReport, changed: dict[str, Any]
) -> None:
    assert after(before, report) == replace(before, **changed)


def test_one_that_closes_to_sleep_is_closing_until_it_sleeps_as_ordered() -> None:
    closing = Closing(990.0, Want.ASLEEP, "idle")
    falls = replace(READY, want=Want.ASLEEP, closing=closing)
    sleeps = after(falls, said(Phase.SLEEPING))
    assert sleeps is not None and sleeps.asleep
    assert sleeps == replace(falls, phase=Phase.SLEEPING, phase_since=NOW, closing=None)
    still = after(replace(falls, want=Want.READY), said(Phase.SLEEPING))
    assert still is not None and still.closing is closing
    works = after(falls, said(Phase.READY, busy=1))
    assert works is not None and works.closing is closing


def test_how_long_and_for_whom_a_model_is_there_is_no_matter_of_its_engine() -> None:
    assert same_engine(M, replace(M, scaling=Scaling(idle_s=1.0), version=Version("other", 0.5)))
    assert not same_engine(M, replace(M, weights="other"))
