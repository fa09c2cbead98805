"""Between two looks at which the manager has something to do, time alone changes nothing."""

from dataclasses import replace
from itertools import count
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fleet.core_world import Box, World, model

from turnout.fleet.core_rules import step
from turnout.fleet.due_rules import next_due
from turnout.fleet.events_and_commands import Tick
from turnout.fleet.fleet_rules import Failures, Fleet, GivenUp, ModelPressure, Rules
from turnout.fleet.machine_rules import Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Scaling
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, Want
from turnout.fleet.route_rules import Demand
from turnout.fleet.worker_rules import OrderRefusal, Worker

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


NOW = 1000.0
RULES = Rules(freeing_s=30.0, settle_s=1.0, sleep_timeout_s=60.0, forget_failed_s=10.0, add_after_s=3.0)
M = Model("m", EngineKind.VLLM, "w", scaling=Scaling(idle_s=300.0, load_timeout_s=600.0, asleep_s=900.0))
MACHINE = Machine((), 0, 0)
WORKER = Worker(WorkerId("w1"), MACHINE, "http://a", 999.0)
READY = Replica(
    ReplicaId("r"), "m", WORKER.id, (), M.needs, Want.READY, Phase.READY, 0.0, 980.0, 970.0, M, ready_at=980.0, ordered_at=960.0
)  # fmt: skip
PRESSED = {"m": ModelPressure(pressed_since=999.0)}


def due(*replicas: Replica, **more: Any) -> float:
    """Of a fleet whose worker is heard without end."""
    rules = more.pop("rules", replace(RULES, suspect_s=inf, gone_s=inf))
    given = {"models": {"m": M}, "workers": {}, "replicas": {r.id: r for r in replicas}, **more}
    return next_due(Fleet(**given, rules=rules), NOW)


@pytest.mark.parametrize(
    ("replica", "at"),
    [
        (READY, 980.0 + 300.0),
        (replace(READY, used_at=990.0), 990.0 + 300.0),
        (replace(READY, ready_at=None), 970.0 + 300.0),
        (replace(READY, busy=1), inf),
        (replace(READY, model="gone"), inf),
        (replace(READY, want=Want.GONE, phase=Phase.FAILED, phase_since=995.0), 995.0 + 10.0),
        (replace(READY, phase=Phase.STARTING), 980.0 + 600.0),
        (replace(READY, phase=Phase.SLEEPING), 980.0 + 600.0),
        (replace(READY, closing=Closing(999.5, Want.GONE, "idle")), 999.5 + 1.0),
        (replace(READY, want=Want.ASLEEP, closing=Closing(999.5, Want.ASLEEP, "idle")), 960.0 + 60.0),
        (replace(READY, want=Want.ASLEEP), 960.0 + 60.0),
        (replace(READY, want=Want.ASLEEP, phase=Phase.SLEEPING), 980.0 + 900.0),
        (replace(READY, want=Want.ASLEEP, phase=Phase.SLEEPING, model="gone"), 960.0 + 60.0),
        (replace(READY, phase=Phase.STOPPING), 960.0 + 60.0),
    ],
)
def test_a_replica_is_due_when_its_own_time_is_up(replica: Replica, at: float) -> None:
    assert due(replica) == at


def test_a_stay_is_over_only_where_somebody_is_pressed() -> None:
    until = 980.0 + RULES.min_resident_s
    assert due(READY, pace={"m": ModelPressure(pressed_since=900.0)}) == until
    assert due(READY, pace={"m": ModelPressure(waiting_since=900.0)}) == 980.0 + 300.0
    assert due(replace(READY, ready_at=None, busy=1), pace={"m": ModelPressure(pressed_since=900.0)}) == inf


@pytest.mark.parametrize(
    ("more", "at"),
    [
        ({"pace": PRESSED}, 999.0 + 3.0),
        ({"pace": {"m": ModelPressure(slack_since=900.0)}}, 900.0 + 300.0),
        ({"pace": {"m": ModelPressure(waiting_since=999.0)}}, inf),
        ({"demand": {"m": Demand(0, 0, 900.0)}}, 900.0 + 300.0),
        ({"demand": {"m": Demand(1, 0, 900.0)}}, inf),
        ({"demand": {"m": Demand(0, 1, 900.0)}}, inf),
        ({"failures": {"m": Failures(1, "x", 1005.0)}}, 1005.0),
        ({"given_up": {"m": GivenUp("x", 1006.0)}}, 1006.0),
        ({"given_up": {"m": GivenUp("x")}}, inf),
        ({"failures": {"m": Failures(1, "x", NOW)}}, inf),
    ],
)
def test_a_model_is_due_at_its_next_turn(more: dict[str, Any], at: float) -> None:
    assert due(**more) == at


@pytest.mark.parametrize(
    ("worker", "more", "at"),
    [
        (WORKER, {}, 999.0 + 6.0),
        (replace(WORKER, heard_at=994.0), {}, 994.0 + 20.0),
        (replace(WORKER, heard_at=980.0), {}, inf),
        (replace(WORKER, refusals={"m": OrderRefusal("x", 1002.0)}), {}, 1002.0),
        (replace(WORKER, freed_at=970.5), {"pace": {"m": ModelPressure(pressed_since=900.0)}}, 970.5 + 30.0),
        (replace(WORKER, freed_at=970.5), {}, 999.0 + 6.0),
    ],
)
def test_a_worker_is_due_when_it_is_missed_or_has_room_again(
    worker: Worker, more: dict[str, Any], at: float
) -> None:
    assert due(workers={worker.id: worker}, rules=RULES, **more) == at


def test_of_all_that_is_due_the_first_counts() -> None:
    assert due(READY, pace=PRESSED, failures={"m": Failures(1, "x", 1001.0)}) == 1001.0
    assert due() == inf
