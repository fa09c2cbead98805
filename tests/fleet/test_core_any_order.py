"""Any order of events, true or false, late or repeated: what must never happen does not, and what can be done is."""

from dataclasses import replace
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.fleet.core_world import RULES, Box, World, model

from turnout.fleet.core_rules import step
from turnout.fleet.events_and_commands import (
    DemandSeen,
    ModelRemoved,
    ModelSet,
    Tick,
    WorkerDraining,
    WorkerHeard,
)
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import Model
from turnout.fleet.placement_rules import could_ever_fit
from turnout.fleet.replica_rules import Phase, ReplicaId, ReplicaReport
from turnout.fleet.route_rules import Demand

NAMES = ("a", "b", "c", "d")
SETTLING_S = 400

boxes = st.builds(
    Box,
    id=st.just(WorkerId("")),
    gpus=st.integers(0, 3),
    gpu_gb=st.sampled_from([40, 80]),
    memory_gb=st.sampled_from([2, 64]),
    load_s=st.sampled_from([0.5, 4.0]),
    usage=st.sampled_from([0.3, 1.0]),
)
models = st.builds(
    model,
    name=st.sampled_from(NAMES),
    gpus=st.integers(0, 3),
    gb=st.sampled_from([10, 30, 50, 80]),
    min_replicas=st.just(0),
    max_replicas=st.integers(1, 3),
    concurrency=st.sampled_from([1, 8]),
    idle_s=st.sampled_from([2.0, 30.0]),
    asleep_s=st.sampled_from([10.0, 60.0]),
    load_timeout_s=st.sampled_from([6.0, 60.0]),
    sleep=st.booleans(),
)
phases = st.sampled_from(list(Phase))


class AnyOrder(RuleBasedStateMachine):
    """`World.feed` checks each decision: see there for the promises."""

    @initialize(machines=st.lists(boxes, min_size=1, max_size=3), first=st.lists(models, max_size=3))
    def begin(self, machines: list[Box], first: list[Model]) -> None:
        named = [replace(box, id=WorkerId(f"w{n}"), engines={}) for n, box in enumerate(machines)]
        self.world = World(*named, models=first)
        self.past: list[WorkerHeard] = []

    def box(self, data: st.DataObject) -> Box:
        return self.world.boxes[data.draw(st.sampled_from(sorted(self.world.boxes)))]

    @rule(one=models, keep=st.integers(0, 2))
    def register(self, one: Model, keep: int) -> None:
        self.world.feed(
            ModelSet(
                replace(one, scaling=replace(one.scaling, min_replicas=min(keep, one.scaling.max_replicas)))
            )
        )

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        self.world.feed(ModelRemoved(name))

    @rule(name=st.sampled_from(NAMES), waiting=st.integers(0, 20), running=st.integers(0, 9))
    def ask(self, name: str, waiting: int, running: int) -> None:
        self.world.ask(name, waiting, running)

    @rule(count=st.integers(1, 12), seconds=st.sampled_from([0.25, 1.0]))
    def obedience(self, count: int, seconds: float) -> None:
        self.world.ticks(count, seconds)

    @rule(seconds=st.sampled_from([0.0, 0.3, 5.0, 25.0, 4000.0]))
    def silence(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.feed(Tick())
        if seconds >= self.world.fleet.rules.forget_s:
            self.past.clear()  # the worker is forgotten, so its last heartbeat would be news

    @rule(data=st.data(), believed=st.booleans())
    def report(self, data: st.DataObject, believed: bool) -> None:
        """A heartbeat that may say anything of the replicas that exist, have existed, or never did."""
        box = self.box(data)
        known = [r.id for r in self.world.fleet.replicas.values()] + [ReplicaId("r1"), ReplicaId("x")]
        chosen = data.draw(st.lists(st.sampled_from(known), unique=True))
        reports = tuple(
            ReplicaReport(i, data.draw(phases), None, data.draw(st.integers(0, 2))) for i in chosen
        )
        seen = self.world.fleet.workers[box.id].version if box.id in self.world.fleet.workers else 0
        lie = replace(self.world.beat(box), reports=reports, seen=seen if believed else 0)
        self.past.append(lie)
        self.world.honest = False
        self.world.feed(lie)

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        box = self.box(data)
        for replica, engine in box.engines.items():
            known = self.world.fleet.replicas.get(replica)
            if engine.phase is Phase.READY and known and known.open:
                engine.busy = data.draw(st.integers(0, 2))
        beat = self.world.beat(box)
        self.past.append(beat)
        self.world.feed(beat)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def late(self, data: st.DataObject) -> None:
        self.world.feed(data.draw(st.sampled_from(self.past)))

    @rule(data=st.data(), hog_gb=st.sampled_from([0, 20, 80]))
    def share_with_others(self, data: st.DataObject, hog_gb: int) -> None:
        self.box(data).hog_gb = hog_gb

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.box(data).up = False

    @rule(data=st.data(), empty=st.booleans())
    def come_back(self, data: st.DataObject, empty: bool) -> None:
        box = self.box(data)
        box.up, box.seen = True, 0
        if empty:
            box.engines.clear()
        self.world.feed(self.world.beat(box))

    @rule(data=st.data(), draining=st.booleans())
    def drain(self, data: st.DataObject, draining: bool) -> None:
        self.world.feed(WorkerDraining(self.box(data).id, draining))

    @invariant()
    def deciding_again_decides_nothing(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        again = (*self.past[-1:], Tick())
        after, commands = step(world.fleet, again, world.now, world.ids)
        assert commands == (), commands
        assert after.replicas == world.fleet.replicas

    def teardown(self) -> None:
        """Whatever went before: once machines obey, every model that is asked for and fits is served."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for box in world.boxes.values():
            box.up, box.hog_gb = True, 0
        world.feed(*(WorkerDraining(w, False) for w in world.boxes))
        for one in list(world.fleet.models.values()):
            world.feed(
                ModelSet(replace(one, scaling=replace(one.scaling, min_replicas=0, load_timeout_s=60.0)))
            )
        world.ever_ready.clear()
        machines = [box.machine() for box in world.boxes.values()]
        wanted = {
            m.name
            for m in world.fleet.models.values()
            if any(could_ever_fit(m, machine) for machine in machines)
        }
        for _ in range(SETTLING_S):
            world.feed(DemandSeen({name: Demand(1, 0, world.now) for name in wanted}))
            world.tick()
            if world.ever_ready >= wanted:
                break
        assert world.ever_ready >= wanted, (wanted, world.ever_ready, world.fleet)


AnyOrder.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=30,
    suppress_health_check=cast(Any, list(HealthCheck)),
)
TestAnyOrder = AnyOrder.TestCase


@settings(max_examples=40)
@given(
    sizes=st.lists(st.sampled_from([30, 50, 80]), min_size=2, max_size=4),
    pattern=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), min_size=1, max_size=8),
    others_wait=st.booleans(),
)
def test_swaps_are_bounded_and_nobody_starves(
    sizes: list[int], pattern: list[tuple[int, int]], others_wait: bool
) -> None:
    """Demand that jumps from model to model, or rests on all of them at once, on one GPU."""
    names = [f"m{n}" for n in range(len(sizes))]
    world = World(
        Box(WorkerId("w"), load_s=1.0),
        models=[model(n, gb=gb, idle_s=1e6) for n, gb in zip(names, sizes, strict=True)],
    )
    seconds, turn = 300, 0
    while world.now < 1000.0 + seconds:
        number, length = pattern[turn % len(pattern)]
        turn += 1
        asked = names if others_wait else [names[number % len(names)]]
        for _ in range(length):
            world.feed(DemandSeen({n: Demand(int(n in asked), 0, world.now) for n in names}))
            world.tick()
    together = 80 // min(sizes)
    assert sum(world.starts.values()) <= together * (seconds / RULES.min_resident_s + 2)
    if others_wait:
        assert world.ever_ready == {*names}
