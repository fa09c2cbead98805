"""What a worker counted is booked as far as it can be true."""

import pytest

from turnout.fleet.machine_rules import Gpu, Machine
from turnout.fleet.model_rules import EngineKind, Model
from turnout.fleet.replica_rules import ReplicaId, ReplicaOrder, Want
from turnout.tenants.gpu_credit_rules import GpuCredit, devices_of, devices_ordered
from turnout.tenants.gpu_time_rules import cells_of

Counts = dict[str, int]


@pytest.mark.parametrize(
    ("ordered", "counted", "booked"),
    [
        pytest.param({"m": {0}}, {"busy:X:m": 7000, "idle:X:m": 3000}, {"busy:X:m": 7000, "idle:X:m": 3000}, id="true"),
        pytest.param({"m": {0}}, {"busy:X:m": 30_000}, {"busy:X:m": 10_000, "free:X:": 10_000}, id="too long"),
        pytest.param({"m": {0}}, {"busy:X:m": 30_000, "loading:X:m": 10_000}, {"busy:X:m": 7500, "loading:X:m": 2500, "free:X:": 10_000}, id="in parts"),
        pytest.param({}, {"busy:X:m": 30_000}, {"free:X:": 20_000}, id="nothing is ordered"),
        pytest.param({"m": {0}}, {"busy:X:n": 5000}, {"free:X:": 5000}, id="of another model"),
        pytest.param({"m": {0}, "n": {0}}, {"busy:X:m": 10_000, "busy:X:n": 10_000}, {"busy:X:m": 5000, "busy:X:n": 5000, "free:X:": 10_000}, id="two share a device"),
        pytest.param({"m": {0, 1}}, {"busy:X:m": 20_000}, {"busy:X:m": 20_000}, id="two devices"),
        pytest.param({}, {"free:X:": 90_000}, {"free:X:": 20_000}, id="free for too long"),
        pytest.param({"m": {-1}}, {"busy:cpu:m": 30_000}, {"busy:cpu:m": 10_000, "free:cpu:": 20_000}, id="beside the GPUs"),
        pytest.param({"m": {0}}, {}, {}, id="nothing"),
    ],
)  # fmt: skip
def test_ten_seconds_of_a_machine_with_two_gpus(
    ordered: dict[str, set[int]], counted: Counts, booked: Counts
) -> None:
    credit = GpuCredit()
    credit.grow({model: frozenset(gpus) for model, gpus in ordered.items()}, {0, 1}, 10.0)
    assert credit.spend(cells_of(counted)) == cells_of(booked)


def test_what_is_left_is_kept_up_to_a_bound_for_models_that_are_ordered_still() -> None:
    m, both = {"m": frozenset({0})}, {"m": frozenset({0}), "n": frozenset({1})}
    credit = GpuCredit()
    credit.grow(both, {0, 1}, 3600.0)
    credit.carry(m, {0, 1})
    assert (credit.models, credit.held, credit.whole) == ({"m": 30_000.0}, 30_000.0, 60_000.0)
    assert credit.spend(cells_of({"busy:X:m": 10**9, "busy:X:n": 10**9})) == cells_of(
        {"busy:X:m": 30_000, "free:X:": 30_000}
    )


def test_what_was_booked_is_booked_once() -> None:
    credit = GpuCredit()
    credit.grow({"m": frozenset({0})}, {0, 1}, 10.0)
    said = cells_of({"busy:X:m": 6000, "free:X:": 6000})
    assert credit.spend(said) == said
    assert credit.spend(said) == cells_of({"busy:X:m": 4000, "free:X:": 4000})
    assert credit.spend(said) == {} and (credit.models, credit.held, credit.whole) == ({"m": 0.0}, 0.0, 0.0)


def test_a_model_that_was_ordered_just_now_has_nothing_yet() -> None:
    credit = GpuCredit()
    credit.carry({"m": frozenset({0})}, {0})
    assert (credit.models, credit.held, credit.whole) == ({"m": 0.0}, 0.0, 0.0)


def test_a_clock_that_steps_back_gives_and_takes_nothing() -> None:
    credit = GpuCredit()
    credit.grow({"m": frozenset({0})}, {0}, 10.0)
    credit.grow({"m": frozenset({0})}, {0}, -3600.0)
    assert credit.models == {"m": 10_000.0}


def test_orders_without_gpus_are_on_the_machine_itself_and_a_machine_says_so_many_gpus_at_most() -> None:
    def order(name: str, *gpus: int) -> ReplicaOrder:
        return ReplicaOrder(ReplicaId(f"r-{gpus}"), Model(name, EngineKind.COMMAND, "w"), gpus, Want.READY)

    found = devices_ordered([order("m", 0), order("m", 0, 1), order("n")])
    assert found == {"m": {0, 1}, "n": {-1}}
    assert devices_of(Machine((), 0, 0)) == {-1}
    assert len(devices_of(Machine(tuple(Gpu(n, 1, 1) for n in range(5000)), 0, 0))) == 128
