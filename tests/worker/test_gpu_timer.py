"""Every moment of every GPU is counted once, whatever replicas do, and however the clock goes."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from turnout.fleet.machine_rules import Gpu, Machine
from turnout.fleet.model_rules import EngineKind, Model, Needs
from turnout.fleet.replica_rules import ReplicaId
from turnout.tenants.gpu_time_rules import GpuState, cell_of
from turnout.worker.gpu_timer_rules import GpuTimer

GB = 10**9
CARD = "NVIDIA H100 80GB HBM3"
MACHINE = Machine(tuple(Gpu(i, 80 * GB, 80 * GB, CARD) for i in range(2)), 0, 0)
BARE = Machine((), 64 * GB, 64 * GB)


def model(name: str, gpu_bytes: int = 0, gpus: int = 1) -> Model:
    return Model(name, EngineKind.VLLM, "w", Needs(gpus, gpu_bytes, GB))


def counted(timer: GpuTimer, now: float) -> dict[tuple[str, str], float]:
    """Seconds by (state, model)."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for name, ms in timer.report(now).counts.items():
        cell = cell_of(name)
        assert cell is not None
        found[cell.state.value, cell.holder] += ms / 1000
    return dict(found)


def total(counts: Iterable[float]) -> float:
    return round(sum(counts), 2)


def test_a_replica_holds_its_gpus_from_its_start_to_its_end() -> None:
    timer, one = GpuTimer("e"), ReplicaId("r1")
    timer.see(MACHINE, 0)
    a = model("a", gpus=2)
    for at, state in ((10, GpuState.LOADING), (40, GpuState.IDLE), (50, GpuState.BUSY), (55, GpuState.IDLE)):
        timer.hold(one, a, (0, 1), state, at)
    timer.hold(one, a, (0, 1), GpuState.ASLEEP, 60)
    timer.hold(one, a, (0, 1), None, 80)
    assert counted(timer, 100) == {
        ("free", ""): 2 * (10 + 20),
        ("loading", "a"): 2 * 30,
        ("idle", "a"): 2 * (10 + 5),
        ("busy", "a"): 2 * 5,
        ("asleep", "a"): 2 * 20,
    }


def test_replicas_that_share_a_gpu_divide_it_by_their_memory() -> None:
    timer = GpuTimer("e")
    timer.see(MACHINE, 0)
    timer.hold(ReplicaId("r1"), model("large", 60 * GB), (0,), GpuState.BUSY, 0)
    timer.hold(ReplicaId("r2"), model("small", 20 * GB), (0,), GpuState.IDLE, 0)
    assert counted(timer, 8) == {("busy", "large"): 6, ("idle", "small"): 2, ("free", ""): 8}


def test_one_that_is_asleep_counts_only_where_no_other_is_awake() -> None:
    timer = GpuTimer("e")
    timer.see(MACHINE, 0)
    timer.hold(ReplicaId("r1"), model("sleeper", 60 * GB), (0,), GpuState.ASLEEP, 0)
    timer.hold(ReplicaId("r2"), model("other", 60 * GB), (0,), GpuState.BUSY, 4)
    assert counted(timer, 10) == {("asleep", "sleeper"): 4, ("busy", "other"): 6, ("free", ""): 10}


def test_a_machine_without_gpus_is_one_device() -> None:
    timer = GpuTimer("e")
    timer.see(BARE, 0)
    timer.hold(ReplicaId("r1"), model("a", gpus=0), (), GpuState.BUSY, 5)
    assert dict(timer.report(10).counts) == {"free:cpu:": 5000, "busy:cpu:a": 5000}


def test_what_the_gpus_are_is_learned_with_the_next_look() -> None:
    timer = GpuTimer("e")
    timer.see(BARE, 0)
    timer.see(MACHINE, 1)  # the driver was loaded late
    assert dict(timer.report(2).counts) == {"free:cpu:": 1000, f"free:{CARD}:": 2000}


def test_a_worker_that_has_seen_very_many_models_reports_no_more_of_them() -> None:
    timer = GpuTimer("e")
    timer.see(MACHINE, 0)
    for n in range(3000):
        timer.hold(ReplicaId("r"), model(f"m{n}"), (0,), GpuState.BUSY, n)
    counts = timer.report(3000).counts
    assert {f"{state}:{CARD}:(others)" for state in ("busy", "free")} <= counts.keys()
    assert len(counts) == 1000 + 2
    assert total(ms / 1000 for ms in counts.values()) > 5990


STEPS = st.lists(
    st.tuples(
        st.floats(-5, 50),  # how the clock goes: also back
        st.sampled_from(["r1", "r2", "r3"]),
        st.sampled_from([None, *(state for state in GpuState if state is not GpuState.FREE)]),
        st.sampled_from([(), (0,), (1,), (0, 1)]),
    ),
    max_size=40,
)


@given(STEPS)
def test_held_and_free_add_up_to_the_time_of_all_gpus(
    steps: list[tuple[float, str, GpuState | None, tuple[int, ...]]],
) -> None:
    timer, clock, furthest = GpuTimer("e"), 0.0, 0.0
    timer.see(MACHINE, 0)
    where: dict[str, tuple[int, ...]] = {}
    on_cpu_since, on_cpu = 0.0, 0.0
    before: Counter[str] = Counter()
    for passed, replica, state, gpus in steps:
        clock += passed
        furthest = max(furthest, clock)
        if any(not held for held in where.values()):
            on_cpu += furthest - on_cpu_since
        on_cpu_since = furthest
        gpus = where.get(replica, gpus)  # a replica keeps its GPUs
        timer.hold(ReplicaId(replica), model(replica, 10 * GB, len(gpus)), gpus, state, clock)
        if state is None:
            where.pop(replica, None)
        else:
            where[replica] = gpus
        counts = Counter(timer.report(clock).counts)
        assert all(counts[name] >= ms for name, ms in before.items()), "a count never shrinks"
        before = counts
    seconds = sum(ms for name, ms in timer.report(clock).counts.items() if ":cpu:" not in name) / 1000
    assert abs(seconds - 2 * furthest) < 0.001 * (len(before) + 1)
    cpu_seconds = sum(ms for name, ms in timer.report(clock).counts.items() if ":cpu:" in name) / 1000
    assert abs(cpu_seconds - on_cpu) < 0.001 * (len(before) + 1)
