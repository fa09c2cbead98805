"""Between two looks at which the manager has something to do, time alone changes nothing."""

from dataclasses import replace
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fleet.core_world import Box, World, model

from turnout.fleet.core_rules import step
from turnout.fleet.due_rules import _of_replicas, next_due
from turnout.fleet.events_and_commands import Tick
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.replica_rules import ReplicaId, Want

NAMES = ("a", "b", "c")


@settings(max_examples=60)
@given(
    asked=st.lists(
        st.tuples(st.sampled_from(NAMES), st.integers(0, 9), st.integers(0, 3), st.integers(1, 15)),
        max_size=12,
    ),
    at=st.floats(0.01, 0.99),
)
def test_nothing_is_decided_before_it_is_due(asked: list[tuple[str, int, int, int]], at: float) -> None:
    world = World(
        Box(WorkerId("w1")),
        Box(WorkerId("w2")),
        models=[
            model("a", gb=60, idle_s=20.0, max_replicas=2, concurrency=4),
            model("b", gb=60, idle_s=7.0, sleep=True, asleep_s=30.0),
            model("c", gb=30, min_replicas=1, max_replicas=3, concurrency=2),
        ],
    )
    for name, waiting, running, seconds in asked:
        world.ask(name, waiting, running)
        for _ in range(seconds):
            world.tick()
            due = min(next_due(world.fleet, world.now), world.now + 100)
            early = world.now + at * (due - world.now)
            _, commands = step(world.fleet, [Tick()], early, (ReplicaId(f"x{n}") for n in count()))
            assert commands == (), (due, early)


def test_an_idle_replica_is_due_when_it_has_been_idle_long_enough() -> None:
    world = World(Box(WorkerId("w1")), models=[model("a", idle_s=20.0)])
    world.ask("a", waiting=1)
    world.ticks(6)
    [replica] = world.ready("a")
    fleet = replace(world.fleet, demand={}, pace={})
    used_at = max(replica.used_at, replica.ready_at or 0.0)
    assert used_at + 20.0 in _of_replicas(fleet)
    gone = replace(replica, want=Want.GONE)
    buried_at = gone.phase_since + fleet.rules.forget_failed_s
    assert _of_replicas(replace(fleet, replicas={gone.id: gone})) == [buried_at]
