"""What admins are told of a worker's replicas."""

from turnout.fleet.machine_rules import Machine
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaOrder, ReplicaReport, Want
from turnout.fleet.worker_messages import replicas_shown
from turnout.fleet.worker_rules import OrderSheet, StoredHeartbeat


def test_a_reported_replica_is_shown_with_the_model_and_gpus_of_its_orders() -> None:
    reports = tuple(ReplicaReport(ReplicaId(name), Phase.READY) for name in ("r1", "r2"))
    beat = StoredHeartbeat(Machine((), 0, 0), reports)
    model = Model("m", EngineKind.VLLM, "w")
    sheet = OrderSheet(1, (ReplicaOrder(ReplicaId("r1"), model, (0, 1), Want.READY),))
    assert [(r.id, r.model, r.gpus) for r in replicas_shown(beat, sheet)] == [
        ("r1", "m", (0, 1)),
        ("r2", None, ()),
    ]
    assert [r.model for r in replicas_shown(beat, None)] == [None, None]
