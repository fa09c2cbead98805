"""What is counted of the manager's decisions."""

from dataclasses import replace

from turnout.fleet.events_and_commands import Blame, Close, SetWant, StartReplica
from turnout.fleet.figure_rules import count_decisions, count_replicas
from turnout.fleet.fleet_rules import Fleet
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, Want

MODEL = Model("a", EngineKind.VLLM, "x")
AWAKE = Replica(
    ReplicaId("r1"),
    "a",
    WorkerId("w"),
    (),
    Needs(),
    Want.READY,
    Phase.READY,
    created_at=0,
    phase_since=0,
    used_at=0,
    spec=MODEL,
)
ASLEEP = replace(AWAKE, id=ReplicaId("r2"), want=Want.ASLEEP, phase=Phase.SLEEPING)
CLOSING = replace(AWAKE, id=ReplicaId("r3"), closing=Closing(0, Want.GONE, "room for b", "b"))
FLEET = Fleet(replicas={r.id: r for r in (AWAKE, ASLEEP, CLOSING)})


def test_starts_wakes_and_evictions_are_counted_and_idling_out_is_not() -> None:
    commands = (
        StartReplica(ReplicaId("r9"), "b", WorkerId("w"), (), Needs(), "load"),
        Blame("b", 1, "it failed", 0.0),
        SetWant(ASLEEP.id, Want.READY, "asked for"),
        Close(AWAKE.id, Want.GONE, "room for b", "b"),
        Close(AWAKE.id, Want.GONE, "idle"),
        SetWant(AWAKE.id, Want.GONE, "idle"),
    )
    assert count_decisions(FLEET, FLEET, commands) == {
        "start:load:b": 1,
        "wake:request:a": 1,
        "evict::a": 1,
        "fail::b": 1,
    }


def test_replicas_are_counted_by_state() -> None:
    assert count_replicas(FLEET) == {"ready:a": 1, "sleeping:a": 1, "closing:a": 1}


def test_the_time_until_a_replica_is_ready_is_counted() -> None:
    starting = replace(AWAKE, id=ReplicaId("r4"), phase=Phase.STARTING, phase_since=10.0)
    waking = replace(ASLEEP, want=Want.READY, phase_since=10.0)
    before = Fleet(replicas={r.id: r for r in (starting, waking)})
    ready = [replace(r, phase=Phase.READY, phase_since=13.0) for r in (starting, waking)]
    after = Fleet(replicas={r.id: r for r in ready})
    assert count_decisions(before, after, ()) == {
        "ready_start:2:a": 1,
        "ready_start:ms:a": 3000,
        "ready_wake:2:a": 1,
        "ready_wake:ms:a": 3000,
    }
    assert count_decisions(after, after, ()) == {}
    for took_s, counted_ms in ((0.4, 400), (-1.0, 0)):
        ready = replace(starting, phase=Phase.READY, phase_since=10.0 + took_s)
        soon = count_decisions(before, Fleet(replicas={ready.id: ready}), ())
        assert soon["ready_start:ms:a"] == counted_ms, "a clock that was set back is no time"


def test_a_start_is_compared_with_the_time_that_the_model_declares_or_took_before() -> None:
    spec = AWAKE.spec
    declared = replace(spec, scaling=replace(spec.scaling, start_s=2.0))
    sleeps = replace(spec, scaling=replace(spec.scaling, sleep=True))

    def compared(spec: Model, learnt_s: float | None) -> dict[str, int]:
        starting = replace(AWAKE, spec=spec, phase=Phase.STARTING, phase_since=10.0)
        ready = replace(starting, phase=Phase.READY, phase_since=16.0)
        before = Fleet(replicas={AWAKE.id: starting}, wake_s={} if learnt_s is None else {"a": learnt_s})
        counted = count_decisions(before, Fleet(replicas={AWAKE.id: ready}), ())
        return {name: n for name, n in counted.items() if name.startswith("ratio")}

    assert compared(spec, None) == {}, "the first start is nobody's fault"
    assert compared(spec, 12.0) == {"ratio_start:1:a": 1, "ratio_start:ms:a": 500}
    assert compared(spec, 0.001) == {"ratio_start:11:a": 1, "ratio_start:ms:a": 6000}
    assert compared(declared, 12.0) == {"ratio_start:9:a": 1, "ratio_start:ms:a": 3000}
    assert compared(sleeps, 1.0) == {}, "the last one may have been a wake"


def test_what_happens_twice_at_once_counts_twice() -> None:
    start = StartReplica(ReplicaId("r8"), "a", WorkerId("w"), (), AWAKE.needs, "load")
    commands = [start, replace(start, gpus=(1,)), Blame("a", 1, "x", 0.0), Blame("a", 2, "x", 0.0)]
    assert count_decisions(Fleet(), Fleet(), commands) == {"start:load:a": 2, "fail::a": 2}
