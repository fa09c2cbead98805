"""What a user is told of a model that waits."""

from dataclasses import replace

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.fleet_rules import Fleet, ModelPressure
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs, Runner, VideoPart
from turnout.fleet.replica_rules import Phase, Replica, ReplicaId, Want
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause, describe, why_tasks_wait
from turnout.fleet.view_rules import statuses, statuses_elsewhere
from turnout.fleet.worker_rules import Standing, Worker
from turnout.tasks.task_rules import GangId

BIG = Machine((Gpu(0, 80 << 30, 80 << 30),), 64 << 30, 64 << 30)
SMALL = Machine((), 8 << 30, 8 << 30)
MODEL = Model("m", EngineKind.VLLM, "w", Needs(gpus=1, gpu_memory_bytes=1 << 30))


def waiting(standing: Standing) -> Fleet:
    big = Worker(WorkerId("w-1"), BIG, "http://a", 0.0, standing, name="gpu1")
    small = Worker(WorkerId("w-2"), SMALL, "http://b", 0.0, name="laptop")
    return Fleet(
        {"m": MODEL}, {big.id: big, small.id: small}, pace={"m": ModelPressure(waiting_since=100.0)}, at=140.0
    )


def test_a_model_whose_only_worker_is_silent_is_told_so() -> None:
    status = statuses(waiting(Standing.GONE))["m"]
    assert (status.cause, status.worker) == (StatusCause.WORKER_SILENT, "gpu1")
    assert describe(status) == "waiting for 40 s: worker gpu1 does not answer"


def test_memory_is_held_only_where_a_worker_is_alive() -> None:
    assert statuses(waiting(Standing.ALIVE))["m"].cause is StatusCause.MEMORY_HELD


def test_who_holds_the_memory_is_named() -> None:
    fleet = waiting(Standing.ALIVE)

    def replica(model: str, worker: str) -> Replica:
        spec = replace(MODEL, name=model)
        return Replica(
            ReplicaId(f"r-{model}"), model, WorkerId(worker), (0,), spec.needs, Want.READY, Phase.READY, 0.0, 0.0, 0.0, spec
        )  # fmt: skip

    held = [replica("b", "w-1"), replica("a", "w-1"), replica("elsewhere", "w-2")]
    status = statuses(replace(fleet, replicas={r.id: r for r in held}))["m"]
    assert (status.cause, status.by) == (StatusCause.MEMORY_HELD, ("a", "b"))


def test_why_a_model_has_no_gang_is_told_until_one_is_ready() -> None:
    served = replace(MODEL, engine=EngineKind.VIDEO, video=VideoPart(FAMILIES["wan-tiny-t2v"]))
    coming = GangReport(GangId("g"), "m", 0, since=0.0, at=1.0)
    ready = replace(coming, ready_at=1.0)

    def status(*gangs: GangReport) -> ModelStatus:
        return statuses_elsewhere([served], Runner.RAY, gangs, {"m": "x broke"})["m"]

    assert status() == status(coming)
    assert why_tasks_wait(status()) == "waiting for a gang: x broke"
    assert status(coming, ready).state is ModelState.READY
