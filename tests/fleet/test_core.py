"""What the manager decides, scene by scene, with machines that obey."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.fleet.core_world import GB, RULES, Box, Engine, World, explain, model, routes

from turnout.fleet.events_and_commands import (
    Close,
    DemandSeen,
    GiveUp,
    ModelRemoved,
    ModelSet,
    SetWant,
    StartReplica,
    Tick,
    WorkerDraining,
)
from turnout.fleet.fleet_rules import rebased
from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs, ServerPart
from turnout.fleet.placement_rules import room_now
from turnout.fleet.replica_rules import Phase, ReplicaReport, Want
from turnout.fleet.route_rules import Demand
from turnout.fleet.view_rules import orders_of, statuses
from turnout.fleet.worker_rules import Standing

W1, W2, W3 = WorkerId("w1"), WorkerId("w2"), WorkerId("w3")


def test_a_model_starts_when_asked_and_goes_when_idle() -> None:
    world = World(Box(W1), models=[model("a", idle_s=30.0)])
    world.ticks(3)
    assert not world.fleet.replicas
    world.ask("a", waiting=200)
    world.ticks(6)
    assert world.ready("a") and world.starts["a"] == 1
    assert explain(world.fleet, "a") == "ready: 1 replica"
    assert statuses(world.fleet)["a"].idle_left_s is None, "it has work"
    world.ask("a")
    world.ticks(28)
    assert world.ready("a")
    assert statuses(world.fleet)["a"].idle_left_s == 2.0
    world.ticks(10)
    assert not world.of("a") and not world.boxes[W1].engines
    asleep = statuses(world.fleet)["a"]
    assert (asleep.idle_left_s, asleep.wake_s) == (None, 4.0), "a tick to be told, and three to load"
    world.ask("a", waiting=1)
    world.ticks(6)
    assert world.ready("a")


def test_a_request_that_comes_while_it_closes_opens_it_again() -> None:
    world = World(Box(W1), models=[model("a", idle_s=30.0)], rules=replace(RULES, settle_s=5.0))
    world.ask("a", waiting=1)
    world.ticks(6)
    world.ask("a")
    while not world.of("a")[0].closing:
        world.tick()
    assert routes(world.fleet)["a"].routes[0].closing
    world.ask("a", waiting=1)
    assert world.ready("a") and world.starts["a"] == 1


def test_min_replicas_are_warm_without_demand_and_spread() -> None:
    world = World(Box(W1), Box(W2), models=[model("a", min_replicas=2, max_replicas=3, gb=30)])
    world.ticks(8)
    assert Counter(r.worker for r in world.ready("a")) == {W1: 1, W2: 1}
    world.ticks(400)
    assert len(world.ready("a")) == 2


def test_one_start_at_a_time_on_a_gpu() -> None:
    world = World(Box(W1), models=[model("a", gb=30), model("b", gb=30)])
    world.tick()
    world.ask("a", waiting=1)
    world.ask("b", waiting=1)
    assert len([c for _, c in world.log if isinstance(c, StartReplica)]) == 1
    world.ticks(10)
    assert world.ready("a") and world.ready("b")


def test_weights_on_disk_decide_between_machines() -> None:
    world = World(Box(W1), Box(W2), models=[model("a")])
    world.tick()
    there = replace(world.boxes[W2].machine(), weights=frozenset({"org/a"}))
    world.feed(replace(world.beat(world.boxes[W2]), machine=there))
    world.ask("a", waiting=1)
    assert world.of("a")[0].worker == W2


def test_load_adds_replicas_with_damping_up_to_the_limit() -> None:
    world = World(Box(W1, gpus=8), models=[model("a", gb=60, max_replicas=4, concurrency=10, idle_s=60.0)])
    world.ask("a", waiting=100)
    world.ticks(6)
    assert world.starts["a"] == 1
    world.ticks(5)
    assert world.starts["a"] == 2
    world.ticks(30)
    assert len(world.ready("a")) == 4
    for _ in range(150):  # one request at a time, here and there: none is ever idle for long
        world.ask("a", running=1)
        for replica in world.ready("a"):
            world.boxes[W1].engines[replica.id].busy = 1
        world.tick()
    assert len(world.ready("a")) <= 2


def test_the_least_recently_used_makes_room_after_its_minimum_stay() -> None:
    world = World(Box(W1), models=[model("a"), model("b"), model("c")])
    world.tick()
    for name in ("a", "b"):
        world.ask(name, waiting=1)
        world.ticks(5)
        world.ask(name)
    assert world.ready("a") and world.ready("b")
    world.ask("c", waiting=1)
    world.tick()
    assert not any(isinstance(c, Close) for _, c in world.log)
    world.ticks(20)
    assert world.ready("c") and world.ready("b") and not world.of("a")


def test_replicas_that_are_kept_warm_make_no_room() -> None:
    world = World(Box(W1), models=[model("warm", gb=60, min_replicas=1), model("b", gb=60)])
    world.ticks(6)
    world.ask("b", waiting=1)
    world.ticks(60)
    assert world.ready("warm") and world.starts["warm"] == 1 and not world.of("b")


def test_only_replicas_beyond_min_replicas_make_room() -> None:
    many = model("many", min_replicas=1, max_replicas=2, concurrency=1, idle_s=1e6)
    world = World(Box(W1, gpus=2, gpu_gb=40), models=[many, model("b"), model("c")])
    world.ask("many", waiting=2)
    world.ticks(20)
    assert len(world.ready("many")) == 2
    world.ask("many")
    world.ask("b", waiting=1)
    world.ask("c", waiting=1)
    world.ticks(8)
    assert len(world.ready("many")) == 1 and len(world.ready("b")) + len(world.ready("c")) == 1


def test_a_replica_that_is_kept_warm_does_not_protect_others() -> None:
    world = World(Box(W1), models=[model("warm", min_replicas=1), model("b"), model("c")])
    world.ticks(6)  # `warm` was used least recently, so it is looked at first
    world.ask("b", waiting=1)
    world.ticks(20)
    world.ask("b")
    world.ask("c", waiting=1)
    world.ticks(8)
    assert world.ready("warm") and world.ready("c") and not world.of("b")


def test_a_busy_replica_is_closed_and_stopped_only_when_drained() -> None:
    world = World(Box(W1), models=[model("a", gb=60), model("b", gb=60)])
    world.ask("a", waiting=1)
    world.ticks(6)
    world.ask("a", running=3)
    engine = next(iter(world.boxes[W1].engines.values()))
    world.ask("b", waiting=1)
    engine.busy, world.boxes[W1].endless = 2, True
    world.ticks(40)
    [replica] = world.of("a")
    assert replica.closing and replica.closing.room_for == "b" and replica.want is Want.READY
    assert explain(world.fleet, "b").endswith("a makes room for it")
    assert "leaving w1 (room for b, 2 requests under way)" in explain(world.fleet, "a")
    world.boxes[W1].endless = False
    world.ticks(10)
    assert world.ready("b")


def test_room_that_nobody_needs_any_more_is_given_back() -> None:
    world = World(Box(W1), models=[model("a", gb=60), model("b", gb=60)])
    world.ask("a", waiting=1)
    world.ticks(30)  # it has users, and stays longer than an idle one
    world.ask("a", running=1)
    engine = next(iter(world.boxes[W1].engines.values()))
    engine.busy = 1
    world.feed(world.beat(world.boxes[W1]))
    world.ask("b", waiting=1)
    assert world.of("a")[0].closing
    world.ask("b")
    assert world.ready("a")


def test_two_models_that_do_not_fit_together_take_turns(figures: Callable[[str], None]) -> None:
    world = World(Box(W1), models=[model("a", gb=60), model("b", gb=60)])
    seconds, tick_s = 600, 0.2  # workers report at once, and get their orders at once
    ready_s = {"a": 0.0, "b": 0.0}
    for _ in range(round(seconds / tick_s)):
        for name in ("a", "b"):
            world.ask(name, waiting=0 if world.ready(name) else 5, running=5 if world.ready(name) else 0)
            ready_s[name] += tick_s if world.ready(name) else 0
        world.tick(tick_s)
    swaps = sum(world.starts.values())
    assert swaps <= seconds / RULES.min_resident_s + 1
    assert min(ready_s.values()) > seconds / 3, ready_s
    assert sum(ready_s.values()) >= 0.75 * seconds, "loading must not take much of the time"
    shares = " and ".join(f"{100 * ready_s[n] / seconds:.0f} %" for n in ("a", "b"))
    figures(
        f"two models on one GPU, both asked for: {swaps} starts in {seconds} s, ready {shares} of the time"
    )


def test_small_models_do_not_starve_a_large_one() -> None:
    small = [model(f"s{n}", gb=30) for n in range(4)]
    world = World(Box(W1), models=[*small, model("large", gb=80)])
    for second in range(300):
        for one in small:
            world.ask(one.name, waiting=1)
        if second > 60:
            world.ask("large", waiting=1)
        world.tick()
    assert "large" in world.ever_ready and all(one.name in world.ever_ready for one in small)


def test_idle_models_sleep_and_wake_before_they_are_gone() -> None:
    world = World(Box(W1), models=[model("a", gb=60, sleep=True, idle_s=20.0, asleep_s=100.0)])
    world.ask("a", waiting=1)
    world.ticks(6)
    world.ask("a")
    world.ticks(30)
    [replica] = world.of("a")
    assert replica.asleep and explain(world.fleet, "a") == "asleep"
    assert not routes(world.fleet)["a"].routes[0].usable
    world.ask("a", waiting=1)
    world.ticks(3)
    assert world.ready("a") and world.starts["a"] == 1
    world.ask("a")
    world.ticks(140)
    assert not world.of("a")


def test_a_sleeper_that_is_told_to_leave_takes_no_more_than_asleep() -> None:
    world = World(Box(W1), models=[model("a", gb=60, sleep=True, idle_s=20.0, asleep_s=30.0)])
    world.ask("a", waiting=1)
    world.ticks(6)
    world.ask("a")
    while world.of("a")[0].want is not Want.GONE:
        world.tick()
    [leaving] = world.of("a")
    assert leaving.needs.gpu_memory_bytes == leaving.needs.asleep_gpu_memory_bytes < 60 * 10**9
    room = room_now(world.fleet.workers[W1], [leaving])
    assert room.largest >= 60 * 10**9, "another model may start at once where it slept"


def test_a_sleeper_wakes_once_others_made_room() -> None:
    world = World(
        Box(W1), models=[model("a", gb=60, sleep=True, idle_s=20.0), model("b", gb=60, idle_s=500.0)]
    )
    world.ask("a", waiting=1)
    world.ticks(6)
    world.ask("a")
    world.ticks(30)
    world.ask("b", waiting=1)
    world.ticks(6)
    assert world.ready("b") and world.of("a")[0].asleep
    world.ask("b")
    world.ask("a", waiting=1)
    world.ticks(20)
    assert world.ready("a") and world.starts["a"] == 1 and not world.ready("b")


def test_models_that_can_sleep_take_turns_asleep() -> None:
    world = World(Box(W1), models=[model(n, gb=60, sleep=True, idle_s=500.0) for n in "ab"])
    for n in range(4):
        name, other = "ab"[n % 2], "ba"[n % 2]
        world.ask(other)
        world.ask(name, waiting=1)
        world.ticks(20)
        assert world.ready(name) and not world.ready(other)
    assert world.starts == {"a": 1, "b": 1}


def test_a_model_that_would_keep_too_much_asleep_leaves() -> None:
    world = World(Box(W1), models=[model(n, gb=80, sleep=True, idle_s=500.0) for n in "ab"])
    for name in "ab":
        world.ask(name, waiting=1)
        world.ticks(20)
        world.ask(name)
    assert world.ready("b") and not world.of("a")


def test_a_model_that_is_asked_for_while_it_makes_room_waits_for_its_turn() -> None:
    world = World(Box(W1), models=[model(n, gb=60, sleep=True, idle_s=500.0) for n in "ab"])
    world.ask("a", waiting=1)
    world.ticks(20)
    world.ask("a")
    world.ask("b", waiting=1)
    while world.of("a")[0].want is not Want.ASLEEP:
        world.tick()
    world.ask("a", waiting=1)
    world.ticks(5)
    assert world.ready("b") and not world.ready("a")


def test_a_model_that_no_worker_could_host_is_given_up_until_one_joins() -> None:
    world = World(Box(W1, gpus=2), models=[model("a", gpus=4)])
    world.tick()
    world.ask("a", waiting=1)
    assert explain(world.fleet, "a") == "it needs 4 GPUs and no worker has more than 2"
    assert routes(world.fleet)["a"].refusal
    world.ask("a")
    world.boxes[W2] = Box(W2, gpus=4)
    world.tick()
    assert routes(world.fleet)["a"].refusal is None
    world.ask("a", waiting=1)
    world.ticks(6)
    assert len(world.ready("a")[0].gpus) == 4


def test_failures_back_off_then_give_up_and_heal() -> None:
    world = World(Box(W1, broken=frozenset({"a"})), models=[model("a")])
    world.tick()
    world.ask("a", waiting=1)
    world.ticks(6)
    assert explain(world.fleet, "a").startswith("failed once: CUDA out of memory; next try in")
    world.ticks(50)
    assert any(isinstance(c, GiveUp) for _, c in world.log)
    refusal = routes(world.fleet)["a"].refusal
    assert refusal and "CUDA out of memory" in refusal
    world.boxes[W1].broken = frozenset()
    world.ticks(100)
    assert world.ready("a") and routes(world.fleet)["a"].refusal is None


def test_a_model_is_refused_with_its_last_permitted_failure_and_not_before() -> None:
    world = World(Box(W1, broken=frozenset({"a"})), models=[model("a")])
    world.tick()
    world.ask("a", waiting=1)
    seen: list[int] = []
    while not routes(world.fleet)["a"].refusal:
        world.tick()
        if "a" in world.fleet.failures:
            seen.append(world.fleet.failures["a"].count)
    assert sorted(set(seen)) == list(range(1, RULES.max_failures + 1)), "each failed start counts once"
    assert seen.count(RULES.max_failures) == 1, "refused at once"


def test_a_start_that_takes_too_long_is_a_failure() -> None:
    world = World(Box(W1, load_s=1e9), models=[model("a", load_timeout_s=20.0)])
    world.tick()
    world.ask("a", waiting=1)
    world.ticks(23)
    assert world.fleet.failures["a"].reason == "it was not ready after 20 s"
    assert not world.of("a")


def test_a_lost_worker_is_suspected_then_its_replicas_are_placed_elsewhere() -> None:
    world = World(Box(W1), Box(W2), models=[model("a")])
    world.ask("a", waiting=1)
    world.ticks(6)
    lost = world.boxes[world.of("a")[0].worker]
    lost.up = False
    world.ticks(8)
    assert world.fleet.workers[lost.id].standing is Standing.SUSPECT
    assert not routes(world.fleet)["a"].routes[0].usable
    world.ticks(20)
    [replica] = world.ready("a")
    assert replica.worker != lost.id
    lost.up = True  # it comes back, with the engine still running
    world.feed(world.beat(lost))
    assert world.fleet.workers[lost.id].strangers and [r.worker for r in world.of("a")] == [replica.worker]
    assert orders_of(world.fleet, [lost.id])[lost.id] == ()
    world.ticks(4)
    assert not lost.engines and not world.fleet.workers[lost.id].strangers


def test_nothing_starts_on_a_worker_that_still_holds_what_was_given_away() -> None:
    world = World(Box(W1), models=[model("a")])
    box = world.boxes[W1]
    box.engines["old"] = Engine((0,), Needs(1, 0), Phase.STARTING, 0)  # pyright: ignore
    world.feed(world.beat(box))
    world.ask("a", waiting=1)
    assert not world.of("a") and "still stops replicas" in explain(world.fleet, "a")
    world.ticks(8)
    assert world.ready("a")


def test_a_restarted_worker_that_lost_its_engines_gets_them_again() -> None:
    world = World(Box(W1), models=[model("a", gb=30), model("b", gb=30)])
    for name in ("a", "b"):
        world.ask(name, waiting=1)
    world.ticks(10)
    world.boxes[W1].engines.clear()
    world.boxes[W1].seen = 0
    world.feed(world.beat(world.boxes[W1]))
    assert "a" not in world.fleet.failures
    world.ticks(10)
    assert world.ready("a") and world.ready("b")


def test_a_draining_worker_empties_and_gets_nothing_new() -> None:
    world = World(Box(W1), models=[model("a", min_replicas=1)])
    world.ticks(6)
    world.feed(WorkerDraining(W1))
    world.ticks(6)
    assert not world.fleet.replicas
    world.boxes[W2] = Box(W2)
    world.ticks(6)
    assert world.ready("a")[0].worker == W2
    world.feed(WorkerDraining(W1, False))
    assert not world.fleet.workers[W1].draining


def test_a_replica_that_stops_by_itself_finishes_before_its_removed_model_leaves() -> None:
    world = World(Box(W1), models=[model("a")])
    world.ask("a", waiting=1)
    world.ticks(6)
    [replica] = world.of("a")
    busy = ReplicaReport(replica.id, Phase.STOPPING, None, 1)
    world.feed(replace(world.beat(world.boxes[W1]), reports=(busy,)))
    world.feed(ModelRemoved("a"))
    [replica] = world.of("a")
    assert replica.closing is not None and replica.want is Want.READY
    world.feed(replace(world.beat(world.boxes[W1]), reports=(replace(busy, busy=0),)))
    assert world.of("a")[0].want is Want.GONE


def test_a_removed_model_leaves_and_a_changed_one_is_replaced() -> None:
    world = World(Box(W1, gpus=2), models=[model("a", min_replicas=1), model("b", min_replicas=1)])
    world.ticks(6)
    old = world.ready("b")[0]
    world.feed(ModelRemoved("a"), ModelSet(replace(model("b", min_replicas=1), dtype="half")))
    assert orders_of(world.fleet, [W1])[W1][0].model.dtype is None
    world.ticks(10)
    assert not world.of("a")
    [new] = world.ready("b")
    assert new.id != old.id and new.spec.dtype == "half"
    world.feed(ModelSet(replace(model("b", min_replicas=1, idle_s=7.0), dtype="half")))
    assert world.ready("b") == [new]


def test_replicas_without_gpus_share_memory() -> None:
    cpu = [replace(model(f"c{n}", gpus=0), needs=Needs(memory_bytes=30 * GB)) for n in range(3)]
    world = World(Box(W1, gpus=0), models=cpu)
    world.tick()
    for one in cpu:
        world.ask(one.name, waiting=1)
    world.ticks(6)
    assert len(world.fleet.replicas) == 2
    world.ticks(40)
    assert world.ever_ready == {"c0", "c1", "c2"}


def test_a_share_of_a_gpu_follows_from_its_size() -> None:
    whole = replace(model("whole"), needs=Needs(1))
    half = replace(model("half"), needs=Needs(1), server=ServerPart(gpu_memory_utilization=0.5))
    world = World(Box(W1), models=[whole, half])
    world.ask("half", waiting=1)
    world.ticks(6)
    assert world.ready("half")[0].needs.gpu_memory_bytes == 40 * GB
    world.ask("whole", waiting=1)
    world.tick()
    assert not world.of("whole")


@pytest.mark.parametrize("seen", [0, 99])
def test_what_a_worker_says_before_it_has_the_orders_is_not_believed(seen: int) -> None:
    world = World(Box(W1), models=[model("a", sleep=True, idle_s=20.0)])
    world.ask("a", waiting=1)
    world.ticks(6)
    world.ask("a")
    while world.of("a")[0].want is not Want.ASLEEP:
        world.tick()
    box = world.boxes[W1]
    report = ReplicaReport(world.of("a")[0].id, Phase.SLEEPING)
    world.feed(replace(world.beat(box), reports=(report,), seen=seen))
    assert not world.of("a")[0].asleep
    world.ticks(2)
    assert world.of("a")[0].asleep


def test_a_repeated_or_late_heartbeat_changes_nothing() -> None:
    world = World(Box(W1), models=[model("a")])
    early = world.beat(world.boxes[W1])
    world.feed(early)
    world.ask("a", waiting=1)
    world.ticks(6)
    before = world.fleet
    assert world.feed(early) == ()
    assert world.fleet.replicas == before.replicas and world.fleet.workers == before.workers


def test_a_heartbeat_that_is_seen_again_is_no_sign_of_life() -> None:
    world = World(Box(W1), models=[model("a")])
    last = world.beat(world.boxes[W1])
    world.feed(last)
    world.now += RULES.suspect_s
    world.feed(last)
    assert world.fleet.workers[W1].standing is Standing.SUSPECT
    world.feed(world.beat(world.boxes[W1]))
    assert world.fleet.workers[W1].standing is Standing.ALIVE


def test_a_new_clock_moves_all_times() -> None:
    world = World(Box(W1), models=[model("a")])
    world.ask("a", waiting=1)
    world.ticks(8)
    back = rebased(rebased(world.fleet, -500.0), 500.0)
    assert back == world.fleet
    world.fleet = rebased(world.fleet, -900.0)
    world.now -= 900.0
    assert world.feed(Tick(), DemandSeen({"a": Demand(0, 1, world.now)})) == ()


def test_a_sleeper_that_will_not_sleep_is_stopped() -> None:
    world = World(Box(W1), models=[model("a", sleep=True, idle_s=20.0)])
    world.ask("a", waiting=1)
    world.ticks(6)
    world.ask("a")
    engine = next(iter(world.boxes[W1].engines.values()))
    for _ in range(100):
        world.tick()
        if engine.phase is Phase.SLEEPING:
            engine.phase = Phase.READY
            world.feed(world.beat(world.boxes[W1]))
    assert any(isinstance(c, SetWant) and c.want is Want.ASLEEP for _, c in world.log)


def test_memory_that_was_freed_must_be_measured_free_before_the_next_start() -> None:
    world = World(Box(W1), models=[model("a", gb=60), model("b", gb=60)])
    world.ask("a", waiting=1)
    world.ticks(20)
    world.ask("a")
    world.ask("b", waiting=1)
    world.boxes[W1].hog_gb = 60  # what the driver has not given back yet
    world.ticks(10)
    assert not world.of("a") and not world.of("b")
    assert explain(world.fleet, "b").endswith("memory is being freed")
    world.boxes[W1].hog_gb = 0
    world.ticks(6)
    assert world.ready("b")


def test_what_was_promised_is_not_given_away_because_it_is_not_used_yet() -> None:
    world = World(Box(W1, usage=0.1), models=[model("a", gb=60), model("b", gb=60)])
    world.ask("a", waiting=1)
    world.ask("b", waiting=1)
    world.ticks(6)
    assert len(world.fleet.replicas) == 1


def test_a_sleeper_that_claims_to_be_awake_does_not_get_its_memory_back() -> None:
    world = World(Box(W1), models=[model("a", gb=60, sleep=True, idle_s=20.0), model("b", gb=60)])
    world.ask("a", waiting=1)
    world.ticks(6)
    world.ask("a")
    world.ticks(30)
    world.ask("b", waiting=1)
    world.ticks(6)
    [sleeper] = world.of("a")
    lie = tuple(replace(r, phase=Phase.READY) for r in world.boxes[W1].reports())
    world.feed(replace(world.beat(world.boxes[W1]), reports=lie))
    assert world.of("a") == [sleeper] and world.ready("b")


def test_nothing_is_placed_on_a_worker_that_may_be_starting_what_it_lost() -> None:
    world = World(Box(W1), models=[model("a")])
    world.ask("a", waiting=1)
    world.ticks(6)
    box = world.boxes[W1]
    box.engines.clear()
    box.seen = 0
    world.feed(world.beat(box))  # the answer to this one still has the old orders
    assert not world.of("a")
    world.tick()
    assert world.of("a")


def test_a_worker_that_knows_newer_orders_than_the_manager_is_overtaken() -> None:
    world = World(Box(W1, seen=70), models=[model("a", min_replicas=1)])
    world.feed(world.beat(world.boxes[W1]))
    assert world.fleet.workers[W1].version > 70
    world.ticks(6)
    assert world.ready("a")


def test_a_worker_that_was_forgotten_can_come_back() -> None:
    world = World(Box(W1), models=[model("a", min_replicas=1)])
    world.ticks(6)
    world.now += RULES.forget_s + 1
    world.feed(Tick())
    assert not world.fleet.workers and not world.fleet.replicas
    world.ticks(8)
    assert world.ready("a")


def video(name: str, gb: int) -> Model:
    """A gang on CPUs."""
    needs = Needs(memory_bytes=gb * GB)
    return replace(model(name, gpus=0, concurrency=1), engine=EngineKind.VIDEO, needs=needs)


def test_a_gang_goes_only_to_a_machine_that_runs_gangs() -> None:
    able = Box(W2, gpus=0, engine_kinds=frozenset(EngineKind))
    world = World(Box(W1, gpus=0), able, models=[video("v", 1)])
    world.ask("v", waiting=3)
    world.ticks(6)
    assert [r.worker for r in world.of("v")] == [W2]


def test_a_model_that_no_machine_can_run_is_refused_until_one_joins() -> None:
    world = World(Box(W1, gpus=0), models=[video("v", 1)])
    world.ask("v", waiting=1)
    world.ticks(2)
    refusal = routes(world.fleet)["v"].refusal
    assert refusal and refusal.startswith("no worker can run wan engines")
    assert explain(world.fleet, "v") == refusal
    world.boxes[W2] = Box(W2, gpus=0, engine_kinds=frozenset(EngineKind))
    world.ask("v", waiting=1)
    world.ticks(6)
    assert world.ready("v") and routes(world.fleet)["v"].refusal is None


def test_an_endless_line_of_videos_lets_a_chat_model_have_its_turn() -> None:
    """The gang finishes the task it has, and takes no other; then the memory is the chat model's for a while."""
    chat = replace(model("c", gpus=0), needs=Needs(memory_bytes=6 * GB))
    box = Box(W1, gpus=0, memory_gb=10, engine_kinds=frozenset(EngineKind))
    world = World(box, models=[video("v", 6), chat])
    ready = Counter[str]()
    for _ in range(200):
        gangs = [box.engines[r.id] for r in world.ready("v") if r.id in box.engines]
        for gang in gangs:
            gang.busy = 1
        busy = len(gangs)
        world.feed(DemandSeen({"v": Demand(50 - busy, busy, world.now), "c": Demand(1, 0, world.now)}))
        world.tick()
        ready.update(name for name in ("v", "c") if world.ready(name))
    assert min(ready.values()) > 40, ready
    assert sum(world.starts.values()) < 20, "no thrash"


def test_a_model_that_an_admin_stops_finishes_and_leaves_and_the_next_request_wakes_it() -> None:
    world = World(Box(W1), models=[model("a", idle_s=300.0)])
    world.ask("a", waiting=1)
    world.ticks(6)
    engine = next(iter(world.boxes[W1].engines.values()))
    engine.busy, world.boxes[W1].endless = 1, True
    world.feed(DemandSeen({"a": Demand(0, 1, world.now, stop=True)}))
    world.ticks(20)
    [replica] = world.of("a")
    assert replica.closing and replica.want is Want.READY  # it finishes what it has
    world.boxes[W1].endless = False
    world.feed(DemandSeen({"a": Demand(0, 0, world.now, stop=True)}))
    world.ticks(10)
    assert not world.of("a")
    world.feed(DemandSeen({"a": Demand(1, 0, world.now, stop=True)}))  # somebody waits: that counts more
    world.ticks(6)
    assert world.ready("a")
