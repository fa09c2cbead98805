"""Where replicas fit: promised and measured memory, tight fits, who must leave."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.machine_rules import Gpu, Machine, WorkerId
from turnout.fleet.model_rules import EngineKind, Model, Needs, VideoPart
from turnout.fleet.placement_rules import (
    could_ever_fit,
    fewest_victims,
    needs_on,
    room_later,
    room_now,
    why_nowhere,
    with_freed,
)
from turnout.fleet.replica_rules import Closing, Phase, Replica, ReplicaId, Want
from turnout.fleet.worker_rules import Worker


def machine(*free: int, total: int = 80) -> Machine:
    return Machine(tuple(Gpu(i, total, f) for i, f in enumerate(free)), 100, 100)


def worker(made: Machine) -> Worker:
    return Worker(WorkerId("w"), made, "", 0.0)


def replica(name: str, gpus: tuple[int, ...], share: int, **more: object) -> Replica:
    needs = Needs(len(gpus), share, 1)
    spec = Model("m", EngineKind.VLLM, "m", needs)
    made = Replica(
        ReplicaId(name), "m", WorkerId("w"), gpus, needs, Want.READY, Phase.READY, 0, 0, 0, spec, heard=True
    )
    return replace(made, **more)


def test_room_is_what_is_neither_promised_nor_in_use() -> None:
    held = [replica("a", (0,), 50), replica("b", (1,), 10)]
    room = room_now(worker(machine(70, 30)), held)
    assert room.gpus == {0: 30, 1: 30} and room.memory == 98


GB = 10**9
SMALL = Machine((Gpu(0, 24 * GB, 24 * GB),), 32 * GB, 32 * GB)
LARGE = Machine((Gpu(0, 80 * GB, 80 * GB), Gpu(1, 24 * GB, 24 * GB)), 64 * GB, 64 * GB)
OVER_MACHINES = (
    "; over several machines a gang needs a network in which they call each other, and torchrun, a LeaderWorkerSet or Ray to"
    " start it"
)
CLIPS = VideoPart(FAMILIES["wan-tiny-t2v"])


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Model("m", EngineKind.VLLM, "w", Needs(3)), "it needs 3 GPUs and no worker has more than 2"),
        (
            Model("m", EngineKind.VIDEO, "w", Needs(3), video=CLIPS),
            "it needs 3 GPUs and no worker has more than 2" + OVER_MACHINES,
        ),
        (Model("m", EngineKind.VLLM, "w", Needs(1, 80 * GB + 1)), "no worker has 1 GPUs with 80.0 GB each"),
        (Model("m", EngineKind.VLLM, "w", Needs(2, 40 * GB)), "no worker has 2 GPUs with 40.0 GB each"),
        (
            Model("m", EngineKind.VLLM, "w", Needs(2, 24 * GB, 65 * GB)),
            "it needs 65.0 GB of memory, which no worker with its GPUs has",
        ),
        (
            Model("m", EngineKind.VLLM, "w", Needs(0, 0, 65 * GB)),
            "it needs 65.0 GB of memory, which no worker with its GPUs has",
        ),
        (
            Model("m", EngineKind.COMMAND, "w"),
            "no worker can run command engines: a worker must allow the command (--allow-command)",
        ),
    ],
)
def test_why_a_model_fits_nowhere_is_said_with_what_helps(model: Model, why: str) -> None:
    engines = frozenset({EngineKind.VLLM, EngineKind.VIDEO})
    assert why_nowhere(model, [replace(one, engines=engines) for one in (SMALL, LARGE)]) == why
    nobody = "no worker has joined: start one with `turnout worker --join URL --token KEY`"
    assert why_nowhere(model, []) == nobody


def test_the_tightest_gpus_are_taken() -> None:
    room = room_now(worker(machine(80, 30, 40, 80)), [])
    assert room.fit(Needs(1, 30)) == (1,)
    assert room.fit(Needs(2, 35)) == (0, 2)
    assert room.fit(Needs(5, 1)) is None
    assert room.fit(Needs(0, 0, 101)) is None


def test_a_gpu_on_which_something_starts_is_blocked_and_counted() -> None:
    starting = replica("a", (0,), 10, phase=Phase.STARTING)
    room = room_now(worker(machine(80, 20)), [starting])
    assert room.fit(Needs(1, 10)) == (1,)
    assert room.fit(Needs(1, 40)) is None
    assert room_later(worker(machine(80, 20)), [starting], freeing=False).fit(Needs(1, 40)) == (0,)


def test_what_leaves_is_room_later() -> None:
    leaving = replica("a", (0,), 60, closing=Closing(0, Want.GONE, ""))
    assert room_now(worker(machine(20)), [leaving]).gpus == {0: 20}
    assert room_later(worker(machine(20)), [leaving], freeing=False).gpus == {0: 80}


def test_memory_that_somebody_else_holds_is_not_room_later_unless_it_is_being_freed() -> None:
    assert room_later(worker(machine(5)), [], freeing=False).gpus == {0: 5}
    assert room_later(worker(machine(5)), [], freeing=True).gpus == {0: 80}


def test_a_sleeper_keeps_only_its_asleep_share() -> None:
    asleep = replica("a", (0,), 60, want=Want.ASLEEP, phase=Phase.SLEEPING)
    assert room_now(worker(machine(80)), [asleep]).gpus == {0: 80}
    waking = replace(asleep, want=Want.READY)
    assert room_now(worker(machine(80)), [waking]).gpus == {0: 20}


def test_a_whole_gpu_fits_on_one_that_is_nearly_free() -> None:
    """Drivers always keep some of it: 0.6 of 140 GiB on an H200."""
    whole = Needs(1, 80)
    assert room_now(worker(machine(78)), []).fit(whole) == (0,)
    assert room_later(worker(machine(78)), [], freeing=False).fit(whole) == (0,)
    assert room_now(worker(machine(70)), []).gpus == {0: 70}, "somebody else works there"
    assert room_now(worker(machine(78)), [replica("a", (0,), 1)]).gpus == {0: 78}, (
        "something of ours is there"
    )


def test_a_share_without_bytes_follows_from_the_largest_gpu() -> None:
    made = Machine((Gpu(0, 40, 40), Gpu(1, 80, 80)), 1, 1)
    model = Model("m", EngineKind.VLLM, "m", Needs(1))
    assert needs_on(model, made).gpu_memory_bytes == 80
    assert (
        needs_on(
            replace(model, server=replace(model.server, gpu_memory_utilization=0.9)), made
        ).gpu_memory_bytes
        == 72
    )
    assert could_ever_fit(model, made)
    assert not could_ever_fit(replace(model, needs=Needs(2, 80)), made)
    assert not could_ever_fit(replace(model, engine=EngineKind.VIDEO), made), "it cannot run gangs"


candidates = st.lists(
    st.tuples(st.sets(st.integers(0, 2), min_size=1, max_size=3), st.integers(1, 26)), max_size=6
)


@given(candidates, st.integers(1, 3), st.integers(1, 80))
def test_victims_are_enough_and_none_is_spared_in_vain(
    made: list[tuple[set[int], int]], gpus: int, share: int
) -> None:
    held = [replica(f"r{n}", tuple(sorted(on)), size) for n, (on, size) in enumerate(made)]
    used = {i: sum(r.needs.gpu_memory_bytes for r in held if i in r.gpus) for i in range(3)}
    total = max(80, *used.values()) if used else 80
    room = room_now(worker(machine(*(total - used[i] for i in range(3)), total=total)), held)
    needs = Needs(gpus, share)
    victims = fewest_victims(room, held, needs)
    assert victims is not None  # an empty machine fits it
    assert with_freed(room, victims).fit(needs) is not None
    for spared in victims:
        assert with_freed(room, [v for v in victims if v is not spared]).fit(needs) is None
