"""Nobody is blamed for what another does: workers that end, are silent, or do not take an order."""

from dataclasses import replace

from tests.fleet.core_world import RULES, Box, World, explain, model

from turnout.fleet.events_and_commands import Blame, GiveUp, ModelSet, WorkerDraining, WorkerRemoved
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import Phase, ReplicaReport
from turnout.fleet.view_rules import orders_of

W1, W2 = WorkerId("w1"), WorkerId("w2")


def test_a_replica_that_its_worker_does_not_start_goes_to_another_and_nobody_is_given_up() -> None:
    world = World(Box(W1), Box(W2), models=[model("a")])
    world.tick()
    world.ask("a", waiting=1)
    [ordered] = world.of("a")
    box = world.boxes[ordered.worker]

    def silent(seen: int) -> None:
        world.feed(replace(world.beat(box), reports=(), seen=seen))

    world.now += RULES.absent_s
    silent(ordered.ordered - 1)
    assert world.of("a") == [ordered], "the worker does not know of it yet"
    world.now = ordered.ordered_at + RULES.absent_s - 0.1
    silent(ordered.ordered)
    assert world.of("a") == [ordered], "it has had little time"
    world.now = ordered.ordered_at + RULES.absent_s
    silent(ordered.ordered)
    [other] = world.of("a")
    assert other.worker != ordered.worker
    del world.boxes[other.worker]
    world.feed(WorkerRemoved(other.worker))
    world.ask("a", waiting=1)
    world.ticks(int(RULES.refusal_s / 2))
    assert not world.of("a") and explain(world.fleet, "a").startswith("waiting"), (
        "it is not asked again so soon"
    )
    world.ticks(int(RULES.refusal_s / 2) + 10)
    assert world.ready("a"), "then it is"
    assert not any(isinstance(c, Blame | GiveUp) for _, c in world.log)


def refuse(world: World, box: Box) -> None:
    """The worker follows no order for what it does not have yet."""
    world.now += 1.0
    known = world.fleet.workers[box.id]
    new = [o for o in orders_of(world.fleet, [box.id])[box.id] if o.replica not in box.engines]
    said = tuple(
        ReplicaReport(o.replica, Phase.FAILED, detail="this worker refuses the order", refused=True)
        for o in new
    )
    world.feed(replace(world.beat(box), reports=(*box.reports(), *said), seen=known.version))


def test_an_order_that_a_worker_refuses_goes_to_another_and_the_model_is_not_blamed() -> None:
    world = World(Box(W1), Box(W2), models=[model("a")])
    world.tick()
    world.ask("a", waiting=1)
    [ordered] = world.of("a")
    refuse(world, world.boxes[ordered.worker])
    [other] = world.of("a")
    assert other.worker != ordered.worker
    world.ticks(6)
    assert world.ready("a") and not world.fleet.failures


def test_a_model_that_every_worker_refuses_is_refused_with_their_reason_until_it_changes() -> None:
    world = World(Box(W1), models=[model("a")])
    world.tick()
    world.ask("a", waiting=1)
    refuse(world, world.boxes[W1])
    assert world.fleet.given_up["a"].reason == "no worker takes it; w1 says: this worker refuses the order"
    assert not world.fleet.failures
    world.feed(ModelSet(replace(world.fleet.models["a"], weights="org/other")))
    world.ticks(6)
    assert world.ready("a") and not world.fleet.given_up


def test_a_worker_that_ends_is_asked_for_nothing_and_no_model_is_blamed_for_it() -> None:
    world = World(Box(W1), Box(W2, gpus=0), models=[model("a"), model("b", gb=30)])
    world.tick()
    world.ask("a", waiting=1)
    world.ticks(6)
    box = world.boxes[W1]
    world.ask("b", waiting=1)
    [ordered] = world.of("b")

    def ending(*reports: ReplicaReport) -> None:
        world.now += 1.0
        version = world.fleet.workers[W1].version
        world.feed(replace(world.beat(box), reports=reports, seen=version, leaving=True))

    [first] = world.of("a")
    ending(ReplicaReport(first.id, Phase.STOPPING, busy=1))
    assert ordered.id not in world.fleet.replicas, "it was ordered too late"
    for name in ("a", "b"):
        assert not [r for r in world.of(name) if r.open]
    for _ in range(20):
        world.ask("b", waiting=1)
        ending(ReplicaReport(first.id, Phase.STOPPING, busy=1))
    ending(ReplicaReport(first.id, Phase.FAILED, detail="killed by signal 15"))
    assert not world.fleet.replicas
    assert explain(world.fleet, "b").startswith("waiting") and not world.fleet.given_up
    world.boxes[WorkerId("w3")] = Box(WorkerId("w3"))
    box.up = False
    world.ticks(8)
    assert world.ready("b")
    assert not any(isinstance(c, Blame | GiveUp) for _, c in world.log)


def test_a_model_with_one_replica_at_most_starts_elsewhere_while_the_other_leaves_with_its_worker() -> None:
    world = World(Box(W1, endless=True), Box(W2), models=[model("a", max_replicas=1)])
    world.ask("a", waiting=1)
    world.ticks(6)
    [first] = world.ready("a")
    box = world.boxes[first.worker]
    box.endless = True
    box.engines[first.id].busy = 1
    world.feed(WorkerDraining(first.worker, True))
    world.ask("a", waiting=1, running=1)
    world.ticks(6)
    assert [r.worker for r in world.ready("a")] != [first.worker]
    assert first.id in world.fleet.replicas, "its request goes on"


def test_a_start_that_is_late_because_its_worker_is_silent_is_not_the_model_s_fault() -> None:
    world = World(Box(W1, load_s=60.0), models=[model("a", load_timeout_s=20.0)])
    world.tick()
    world.ask("a", waiting=1)
    world.ticks(10)
    world.boxes[W1].up = False
    world.ticks(30)
    assert not world.of("a") and not world.fleet.failures
