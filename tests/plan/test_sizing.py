"""How many machines and replicas a mode begins with: fixed replicas by the busiest hour, shared machines by the mean."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.plan.planned import chat, scenario, video

from turnout.fleet.model_rules import Scaling
from turnout.plan.cloud import Pool
from turnout.plan.modes import ALWAYS_S, BUSY, Load, PlanMode, loads, setup_of
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


def test_each_mode_keeps_models_and_machines_in_its_way() -> None:
    models = [video(max_replicas=8, min_replicas=2), chat(idle_s=9.0)]
    kinds = replace(ONE_GPU, min=1)
    made = scenario(models, [TrafficPart(model="wan", an_hour=1)], kinds)
    load = {"wan": Load(), "chat": Load()}

    def settled(mode: PlanMode) -> tuple[dict[str, Scaling], tuple[Pool, ...]]:
        setup = setup_of(made, mode, load)
        assert (setup.mode, setup.variant) == (mode, "")
        return {name: model.spec.scaling for name, model in setup.models.items()}, setup.pools

    declared = {model.name: model.spec.scaling for model in models}
    own = {"wan": replace(declared["wan"], min_replicas=2, max_replicas=2)}  # as the file keeps them
    one = {"chat": replace(declared["chat"], min_replicas=1, max_replicas=1)}
    assert settled(PlanMode.RESIDENT) == ({**own, **one}, (Pool("m", kinds, 3, 3),))
    wan, talk = declared["wan"], replace(declared["chat"], min_replicas=1)
    assert settled(PlanMode.AUTOSCALE) == ({"wan": wan, "chat": talk}, (Pool("m", kinds, 3, 9),))
    asleep = {name: replace(of, sleep=name == "chat", asleep_s=ALWAYS_S) for name, of in declared.items()}
    assert settled(PlanMode.WARM) == (asleep, (Pool("m", kinds, 1, 9),))
    stays = {name: replace(of, idle_s=ALWAYS_S) for name, of in declared.items()}
    assert settled(PlanMode.SHARED) == (stays, (Pool("m", kinds, 1, 1),))
    for mode in (PlanMode.JOB, PlanMode.ZERO):
        assert settled(mode) == (declared, (Pool("m", kinds, 1, 9),))


def test_the_largest_replicas_are_placed_first() -> None:
    """Three GPUs and one, two and two: two machines of four. In the other order it would take three."""
    models = [video("one", gpus=1), video("two", gpus=2, max_replicas=2), video("three", gpus=3)]
    made = scenario(models, [TrafficPart(model="one", an_hour=1)], replace(ONE_GPU, gpus=4))
    load = {"one": Load(), "two": Load(peak=2 * BUSY), "three": Load()}
    assert [pool.on for pool in setup_of(made, PlanMode.RESIDENT, load).pools] == [2]


def test_models_that_sleep_need_the_room_of_sleepers() -> None:
    made = scenario([chat("a"), chat("b"), chat("c")], [TrafficPart(model="a", an_hour=1)], ONE_GPU)
    load = {name: Load() for name in "abc"}
    assert [pool.on for pool in setup_of(made, PlanMode.WARM, load).pools] == [1], "60 GB awake, 1 GB asleep"


def test_machines_of_several_kinds_are_counted_each() -> None:
    """A model of four GPUs needs the dear kind; small ones go to the cheap kind, largest first."""
    small, large = ONE_GPU, replace(ONE_GPU, gpus=4, price_an_hour=20.0, max=2)
    both = [video("big", gpus=4, max_replicas=8), video("a", max_replicas=8), video("b", max_replicas=8)]
    kinds = {"small": small, "large": large}
    made = replace(scenario(both, [TrafficPart(model="a", an_hour=1)]), machines=kinds)

    def on(mode: PlanMode, more: int = 0, **means: float) -> dict[str, int]:
        load = {
            name: Load(mean=means.get(name, 0.0), peak=means.get(name, 0.0)) for name in ("big", "a", "b")
        }
        return {pool.name: pool.on for pool in setup_of(made, mode, load, more=more).pools}

    assert on(PlanMode.RESIDENT) == {"small": 2, "large": 1}
    assert on(PlanMode.RESIDENT, a=1.5, b=1.5) == {"small": 4, "large": 1}
    assert on(PlanMode.SHARED) == {"small": 1, "large": 1}
    assert on(PlanMode.SHARED, more=2) == {"small": 3, "large": 1}, "of the cheapest"
    assert on(PlanMode.SHARED, more=99) == {"small": 9, "large": 1}, "no more than there are"
    assert on(PlanMode.SHARED, a=3.4 * BUSY, b=3.4 * BUSY) == {"small": 6, "large": 1}
    assert on(PlanMode.SHARED, big=1.4 * BUSY) == {"small": 2, "large": 1}, (
        "what is left over goes to the cheapest"
    )
    assert on(PlanMode.WARM) == {"small": 0, "large": 1}, "the largest model decides"


@pytest.mark.parametrize(
    ("timing", "tokens", "seconds"),
    [
        ({}, 190, (0.2 + 190 / 50) / 4),
        ({"total_tokens_per_s": 95.0}, 190, 2.0),
        ({"tokens_per_s": None, "seconds": 8.0}, 190, 2.0),
        ({"seconds": 8.0}, 0, 2.0),
    ],
)
def test_the_part_of_a_replica_that_a_request_takes(
    timing: dict[str, Any], tokens: int, seconds: float
) -> None:
    model = chat()
    model = replace(model, timing=replace(model.timing, **timing))
    part = TrafficPart(model="chat", bursts=Bursts(every_s=3600.0, requests=100), tokens=tokens)
    found = loads(scenario([model], [part], ONE_GPU, days=1.0), Path())["chat"]
    assert found.mean == pytest.approx(100 * seconds / 3600, rel=0.15)


def test_a_model_without_requests_has_no_load_and_less_than_an_hour_counts_as_one() -> None:
    parts = [TrafficPart(model="wan", bursts=Bursts(every_s=3600.0, requests=6))]
    made = scenario([video(seconds=60.0), chat()], parts, ONE_GPU, days=0.5 / 24)
    found = loads(made, Path())
    assert found["chat"] == Load(0.0, 0.0)
    assert found["wan"].mean == found["wan"].peak == pytest.approx(0.1)
