"""What others see of the fleet: how models stand, in words where they wait, orders of workers, routes."""

from dataclasses import replace
from typing import Any

import pytest

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp, ModelPressure, Rules
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs, Runner, Scaling, VideoPart
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, ReplicaOrder, Want
from turnout.fleet.route_rules import Demand, ModelRoutes, Route
from turnout.fleet.status_rules import ModelState, ModelStatus, StatusCause, describe, why_tasks_wait
from turnout.fleet.view_rules import orders_of, routes_of, statuses, statuses_elsewhere
from turnout.fleet.worker_rules import DrainedBy, Standing, Worker
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


AT = 140.0
IDLE_S = 300.0
CHAT = replace(MODEL, scaling=Scaling(idle_s=IDLE_S))
GPU1 = Worker(WorkerId("w-1"), BIG, "http://a", 0.0, name="gpu1")


def made(name: str = "m", number: int = 1, **changes: Any) -> Replica:
    """A replica of the model `name` that is ready and idle."""
    times = {
        "created_at": 10.0,
        "phase_since": 120.0,
        "used_at": 90.0,
        "ordered_at": 110.0,
        "ready_at": 100.0,
    }
    fixed = {
        "worker": GPU1.id,
        "gpus": (0,),
        "needs": CHAT.needs,
        "spec": CHAT,
        "want": Want.READY,
        "phase": Phase.READY,
        **times,
    }
    return Replica(ReplicaId(f"{name}-{number}"), name, **{**fixed, **changes})


def fleet_of(*replicas: Replica, worker: Worker | None = GPU1, waits: bool = False, **more: Any) -> Fleet:
    workers = {} if worker is None else {worker.id: worker}
    pace = {"m": ModelPressure(waiting_since=100.0)} if waits else {}
    there = {r.id: r for r in replicas}
    return Fleet(
        **{"models": {"m": CHAT}, "workers": workers, "replicas": there, "pace": pace, "at": AT, **more}
    )


STARTING = made(phase=Phase.STARTING, detail="40 %", ready_at=None)
CLOSING = Closing(130.0, Want.GONE, "idle", room_for="m")
SILENT = replace(GPU1, standing=Standing.GONE)
FREEING_S = Rules().freeing_s
IDLE_LEFT_S = IDLE_S - (AT - 100.0)
ready, failed, stopped = ModelState.READY, ModelState.FAILED, ModelState.STOPPED


def waits_for(cause: StatusCause, worker: str = "", *by: str) -> ModelStatus:
    return ModelStatus(ModelState.WAITING, cause, worker=worker, for_s=40.0, by=by)


@pytest.mark.parametrize(
    ("fleet", "status"),
    [
        (fleet_of(made(), wake_s={"m": 7.0}), ModelStatus(ready, replicas=1, wake_s=7.0, idle_left_s=IDLE_LEFT_S)),
        (fleet_of(made(), made(number=2)), ModelStatus(ready, replicas=2, idle_left_s=IDLE_LEFT_S)),
        (
            fleet_of(made(), worker=SILENT),
            ModelStatus(failed, StatusCause.WORKER_SILENT, worker="gpu1", idle_left_s=IDLE_LEFT_S),
        ),
        (fleet_of(made(), worker=None), ModelStatus(failed, StatusCause.WORKER_SILENT, worker="w-1", idle_left_s=IDLE_LEFT_S)),
        (fleet_of(STARTING, given_up={"m": GivenUp("too large")}), ModelStatus(failed, reason="too large")),
        (fleet_of(given_up={"m": GivenUp("busy", 200.0)}), ModelStatus(stopped)),
        (fleet_of(STARTING), ModelStatus(ModelState.STARTING, worker="gpu1", for_s=20.0, reason="40 %")),
        (
            fleet_of(made(phase=Phase.SLEEPING, detail="x"), worker=replace(GPU1, name="")),
            ModelStatus(ModelState.STARTING, worker="w-1", for_s=20.0, waking=True),
        ),
        (
            fleet_of(failures={"m": Failures(2, "no memory", 150.0)}),
            ModelStatus(failed, failures=2, reason="no memory", retry_s=10.0),
        ),
        (fleet_of(failures={"m": Failures(2, "no memory", AT)}), ModelStatus(stopped)),
        (
            fleet_of(made(busy=3, closing=CLOSING)),
            ModelStatus(ModelState.STOPPING, worker="gpu1", reason="idle", busy=3),
        ),
        (fleet_of(made(want=Want.GONE)), ModelStatus(ModelState.STOPPING, worker="gpu1", for_s=30.0)),
        (fleet_of(made(want=Want.ASLEEP, phase=Phase.SLEEPING)), ModelStatus(ModelState.ASLEEP)),
        (fleet_of(made("other")), ModelStatus(stopped)),
        (fleet_of(pace={"m": ModelPressure()}), ModelStatus(stopped)),
        (fleet_of(worker=None, waits=True), waits_for(StatusCause.NO_WORKER)),
        (fleet_of(worker=SILENT, waits=True), waits_for(StatusCause.NO_WORKER_ALIVE)),
        (fleet_of(worker=GPU1.drained(DrainedBy.ADMIN, True), waits=True), waits_for(StatusCause.NO_WORKER_ALIVE)),
        (
            fleet_of(made("other", closing=CLOSING), made("else", closing=replace(CLOSING, room_for="x")), waits=True),
            waits_for(StatusCause.ROOM_BEING_MADE, "", "other"),
        ),
        (fleet_of(worker=replace(GPU1, hold=1), waits=True), waits_for(StatusCause.WORKER_UNSETTLED, "gpu1")),
        (
            fleet_of(worker=replace(GPU1, freed_at=AT - FREEING_S + 1), waits=True),
            waits_for(StatusCause.MEMORY_BEING_FREED),
        ),
        (fleet_of(worker=replace(GPU1, freed_at=AT - FREEING_S), waits=True), waits_for(StatusCause.MEMORY_HELD)),
    ],
)  # fmt: skip
def test_how_a_model_stands(fleet: Fleet, status: ModelStatus) -> None:
    assert statuses(fleet) == {"m": status}


@pytest.mark.parametrize(
    ("replica", "demand", "min_replicas", "left_s"),
    [
        (made(), None, 0, IDLE_LEFT_S),
        (made(used_at=120.0), None, 0, IDLE_S - 20.0),
        (made(), Demand(0, 0, 130.0), 0, IDLE_S - 10.0),
        (made(), Demand(0, 0, 50.0), 0, IDLE_LEFT_S),
        (made(used_at=-999.0, ready_at=-999.0), None, 0, IDLE_S - AT),
        (made(ready_at=None), None, 0, IDLE_S - 50.0),
        (made(busy=1), None, 0, None),
        (made(), Demand(1, 0, 130.0), 0, None),
        (made(), Demand(0, 1, 130.0), 0, None),
        (made(), None, 1, None),
        (STARTING, None, 0, None),
        (made(closing=CLOSING), None, 0, None),
    ],
)
def test_when_its_last_replica_leaves_if_nobody_asks(
    replica: Replica, demand: Demand | None, min_replicas: int, left_s: float | None
) -> None:
    model = replace(CHAT, scaling=replace(CHAT.scaling, min_replicas=min_replicas))
    fleet = fleet_of(replica, models={"m": model}, demand={"m": demand} if demand else {})
    assert statuses(fleet)["m"].idle_left_s == left_s
    brief = replace(model, scaling=replace(model.scaling, idle_s=0.5))
    assert statuses(replace(fleet, models={"m": brief}))["m"].idle_left_s == (None if left_s is None else 0.0)


def test_a_worker_is_ordered_all_that_it_should_have_and_nothing_of_others() -> None:
    other = made("other", closing=CLOSING, want=Want.ASLEEP, gpus=(1, 2))
    fleet = fleet_of(made(), other, made(number=2, worker=WorkerId("w-2")))
    assert orders_of(fleet, [GPU1.id, WorkerId("w-3")]) == {
        "w-1": (
            ReplicaOrder(ReplicaId("m-1"), CHAT, (0,), Want.READY, closing=False),
            ReplicaOrder(ReplicaId("other-1"), CHAT, (1, 2), Want.ASLEEP, closing=True),
        ),
        "w-3": (),
    }
    assert orders_of(fleet, []) == {}


def test_requests_go_to_what_is_ready_or_sleeps_on_a_worker_that_is_known() -> None:
    there = [
        made(number=1, address="h:1"),
        made(number=2, phase=Phase.SLEEPING, want=Want.ASLEEP),
        made(number=3, phase=Phase.SLEEPING),
        made(number=4, want=Want.ASLEEP, closing=CLOSING),
        made(number=5, phase=Phase.STARTING),
        made(number=6, want=Want.GONE),
        made(number=7, worker=WorkerId("gone")),
        made("other"),
    ]
    fleet = fleet_of(*there, given_up={"m": GivenUp("too large")})

    def route(number: int, address: str | None = None, **said: bool) -> Route:
        return Route(ReplicaId(f"m-{number}"), GPU1.id, "http://a", address, **said)

    routes = (
        route(1, "h:1"),
        route(2, asleep=True),
        route(3, asleep=True),
        route(4, closing=True, asleep=True),
    )
    assert routes_of(fleet, ["m"]) == {"m": ModelRoutes(routes, CHAT.concurrency, "too large", False)}
    silent = routes_of(replace(fleet, workers={GPU1.id: SILENT}, given_up={}), ["m"])["m"]
    assert all(one.suspect for one in silent.routes) and silent.refusal is None
    assert routes_of(fleet, []) == {}
    sees = replace(CHAT, server=replace(CHAT.server, vision=True))
    assert [routes_of(fleet_of(models={"m": m}), ["m"])["m"].vision for m in (CHAT, sees)] == [None, True]
    videos = replace(CHAT, engine=EngineKind.VIDEO, video=VideoPart(FAMILIES["wan-tiny-t2v"]))
    assert routes_of(fleet_of(models={"m": videos}), ["m"])["m"].video


def test_gangs_elsewhere_are_counted_and_who_runs_them_is_said() -> None:
    served = replace(MODEL, engine=EngineKind.VIDEO, video=VideoPart(FAMILIES["wan-tiny-t2v"]))
    gang = GangReport(GangId("g"), "m", 0, since=0.0, at=1.0, ready_at=1.0)
    chat = replace(MODEL, name="chat")
    told = statuses_elsewhere([served, chat], Runner.RAY, [gang, replace(gang, gang=GangId("h"))], {})
    assert list(told) == ["m"], "models of engine servers are the manager's own"
    assert (told["m"].state, told["m"].cause, told["m"].replicas) == (ready, StatusCause.RUN_BY_RAY, 2)
    none = statuses_elsewhere([served], Runner.JOB, [], {})["m"]
    assert none == ModelStatus(stopped, StatusCause.RUN_BY_JOBS)
