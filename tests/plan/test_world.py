"""What holds in every simulated world, and what each mode is good for."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plan.planned import chat, run_mode, scenario, video

from turnout.plan.gpu_meter import GpuUse
from turnout.plan.modes import PlanMode
from turnout.plan.scenario import Bursts, Faults, Kill, MachineKind, Scenario, TrafficPart

parts = st.builds(
    TrafficPart,
    model=st.sampled_from(["wan", "chat", "other"]),
    an_hour=st.floats(1, 40),
    bursts=st.none() | st.builds(Bursts, every_s=st.floats(600, 7200), requests=st.integers(1, 20)),
    tokens=st.just(100.0),
    tenants=st.sampled_from([{}, {"a": 1.0, "b": 3.0}]),
)
worlds = st.builds(
    lambda traffic, gpus, most, deaths, crashes, slow, seed: scenario(
        [video(max_replicas=3), chat(max_replicas=2), chat("other", gb=50)],
        traffic,
        MachineKind(gpus=gpus, price_an_hour=2.0, max=most, boot_s=90, deaths_a_day=deaths),
        faults=Faults(crashes_a_day=crashes, slow_loads=slow),
        seed=seed,
        days=0.2,
    ),
    traffic=st.lists(parts, min_size=1, max_size=3),
    gpus=st.integers(1, 4),
    most=st.integers(1, 3),
    deaths=st.sampled_from([0.0, 0.0, 20.0]),
    crashes=st.sampled_from([0.0, 0.0, 30.0]),
    slow=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 99),
)


@settings(max_examples=30)
@given(made=worlds, mode=st.sampled_from(list(PlanMode)))
def test_no_request_is_lost_or_served_twice_and_all_gpu_time_is_accounted_for(
    made: Scenario, mode: PlanMode
) -> None:
    outcome = run_mode(made, mode)
    ended = outcome.counts.served + outcome.counts.refused + outcome.counts.failed + outcome.counts.unfinished
    assert ended == outcome.counts.requests
    if mode not in (
        PlanMode.RESIDENT,
        PlanMode.AUTOSCALE,
    ):  # there, models that are always on may leave no room for others
        assert outcome.counts.unfinished == 0
    assert outcome.waits.count >= outcome.counts.served
    assert sum(outcome.gpu.by_use) == pytest.approx(outcome.gpu.paid, abs=1e-3)
    assert min(outcome.gpu.by_use) >= -1e-6


@settings(max_examples=6)
@given(made=worlds, mode=st.sampled_from(list(PlanMode)))
def test_the_same_seed_gives_the_same_result(made: Scenario, mode: PlanMode) -> None:
    assert asdict(run_mode(made, mode)) == asdict(run_mode(made, mode))


@settings(max_examples=8)
@given(seed=st.integers(0, 999), an_hour=st.floats(20, 200), gpus=st.integers(1, 3))
def test_more_machines_do_not_make_waits_longer(seed: int, an_hour: float, gpus: int) -> None:
    waits: list[float] = []
    for count in (1, 2, 4):
        kind = MachineKind(gpus=gpus, min=count, max=count, price_an_hour=1.0)
        made = scenario(
            [video(max_replicas=12, seconds=40.0)],
            [TrafficPart(model="wan", an_hour=an_hour)],
            kind,
            seed=seed,
            days=0.15,
        )
        waits.append(run_mode(made, PlanMode.SHARED).waits.p95_s)
    assert waits[1] <= waits[0] + 5 and waits[2] <= waits[1] + 5, waits


def test_modes_differ_as_they_should() -> None:
    made = scenario([video()], [TrafficPart(model="wan", a_day=20)])
    found = {mode: run_mode(made, mode) for mode in PlanMode}
    assert (
        found[PlanMode.RESIDENT].waits.p95_s
        < 1
        < found[PlanMode.ZERO].waits.p50_s
        <= found[PlanMode.JOB].waits.p50_s
    )
    assert found[PlanMode.ZERO].gpu.cost < found[PlanMode.RESIDENT].gpu.cost / 2
    assert (
        found[PlanMode.JOB].counts.cold_starts
        == found[PlanMode.JOB].counts.requests
        > found[PlanMode.ZERO].counts.cold_starts
    )
    assert found[PlanMode.RESIDENT].counts.cold_starts == 1
    assert found[PlanMode.RESIDENT].gpu.joules > 0


def test_a_sleeping_model_wakes_faster_than_it_loads() -> None:
    made = scenario([chat(idle_s=60.0)], [TrafficPart(model="chat", an_hour=6, tokens=50)])
    warm, zero = run_mode(made, PlanMode.WARM), run_mode(made, PlanMode.ZERO)
    assert warm.counts.wakes > 10 and warm.counts.cold_starts == 1
    assert warm.waits.p95_s < zero.waits.p95_s / 5


def test_two_models_take_turns_on_one_gpu() -> None:
    made = scenario(
        [chat("a"), chat("b")],
        [TrafficPart(model=name, an_hour=600, tokens=50) for name in ("a", "b")],
        MachineKind(gpus=1, min=1, price_an_hour=1.0),
        days=0.05,
    )
    outcome = run_mode(made, PlanMode.SHARED)
    assert outcome.counts.evictions > 4
    assert outcome.counts.served + outcome.counts.refused == outcome.counts.requests


def test_a_killed_gang_costs_its_video_only_what_was_not_kept() -> None:
    models, traffic = (
        [video(seconds=100.0)],
        [TrafficPart(model="wan", bursts=Bursts(every_s=1e6, requests=1))],
    )
    whole = run_mode(scenario(models, traffic))
    killed = run_mode(scenario(models, traffic, faults=Faults(kills=(Kill(at_s=250.0, model="wan"),))))
    assert killed.counts.served == whole.counts.served == 1
    extra_s = killed.gpu.by_use[GpuUse.BUSY] - whole.gpu.by_use[GpuUse.BUSY]
    assert 0 <= extra_s <= 20 and killed.counts.cold_starts == 2


def test_tenants_take_turns_and_limits_refuse() -> None:
    burst = TrafficPart(
        model="wan", bursts=Bursts(every_s=1e6, requests=40, within_s=10), tenants={"big": 1.0}
    )
    small = replace(burst, bursts=Bursts(every_s=1e6, requests=2, within_s=10), tenants={"small": 1.0})
    made = scenario([video()], [burst, small], MachineKind(gpus=1, min=1, price_an_hour=1.0))
    assert run_mode(made, PlanMode.SHARED).counts.refused == 0
    tight = replace(made, service=replace(made.service, limit_running=1, limit_waiting=9))
    assert run_mode(tight, PlanMode.SHARED).counts.refused == 30
