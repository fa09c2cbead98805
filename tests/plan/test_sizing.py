"""How many machines and replicas a mode begins with: fixed replicas by the busiest hour, shared machines by the mean."""

from pathlib import Path

import pytest
from tests.plan.planned import chat, scenario, video

from turnout.plan.modes import BUSY, Load, PlanMode, loads, setup_of
from turnout.plan.scenario import Bursts, MachineKind, TrafficPart

ONE_GPU = MachineKind(gpus=1, price_an_hour=4.0, max=9, boot_s=120, watts=700, idle_watts=100)
MADE = scenario([video(max_replicas=8)], [TrafficPart(model="wan", an_hour=1)], ONE_GPU)
UNEVEN = {"wan": Load(mean=0.5, peak=3.5)}


def machines(mode: PlanMode, load: Load, more: int = 0) -> int:
    return sum(pool.on for pool in setup_of(MADE, mode, {"wan": load}, busy=0.7, more=more).pools)


def test_fixed_replicas_are_as_many_as_the_busiest_hour_needs() -> None:
    kept = setup_of(MADE, PlanMode.RESIDENT, UNEVEN, busy=0.7).models["wan"].spec.scaling
    assert (kept.min_replicas, kept.max_replicas) == (5, 5)
    assert machines(PlanMode.RESIDENT, UNEVEN["wan"]) == 5
    assert machines(PlanMode.RESIDENT, Load(mean=3.5, peak=3.5)) == 5, "the mean says nothing of them"
    assert machines(PlanMode.RESIDENT, UNEVEN["wan"], more=1) == 6
    assert machines(PlanMode.RESIDENT, Load(9.0, 99.0)) == 8, "no more than the model may have"
    assert machines(PlanMode.RESIDENT, Load()) == 1


def test_shared_machines_are_as_many_as_the_mean_keeps_busy() -> None:
    assert machines(PlanMode.SHARED, Load(mean=2.9 * BUSY, peak=8.0)) == 3, "whatever the busiest hour is"
    assert machines(PlanMode.SHARED, Load(mean=3.1 * BUSY, peak=3.0)) == 4
    assert machines(PlanMode.SHARED, Load(mean=0.1, peak=8.0)) == 1
    assert machines(PlanMode.SHARED, Load(mean=2.9 * BUSY, peak=8.0), more=2) == 5


def test_elastic_modes_begin_with_what_must_be_there() -> None:
    assert machines(PlanMode.ZERO, UNEVEN["wan"]) == machines(PlanMode.JOB, UNEVEN["wan"]) == 0
    assert machines(PlanMode.AUTOSCALE, UNEVEN["wan"]) == 1


def test_load_is_counted_from_the_requests_by_the_hour() -> None:
    bursts = Bursts(every_s=4 * 3600.0, requests=60)
    made = scenario([video(seconds=30.0)], [TrafficPart(model="wan", bursts=bursts)], ONE_GPU, days=1.0)
    found = loads(made, Path())["wan"]
    assert found.peak == pytest.approx(0.5)  # 60 of 30 s in one hour
    assert found.mean == pytest.approx(0.125)  # and nothing in the three others


def test_a_chat_request_takes_its_part_of_a_replica() -> None:
    made = scenario([chat()], [TrafficPart(model="chat", an_hour=3600, tokens=190)], ONE_GPU, days=1.0)
    found = loads(made, Path())["chat"]
    assert found.mean == pytest.approx((0.2 + 190 / 50) / 4, rel=0.2)
