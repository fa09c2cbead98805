"""What GPU time cost, and how it is divided: nothing is lost, and nothing is charged twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.tasks.task_rules import TenantId
from turnout.tenants.gpu_cost_rules import (
    SERVICE,
    CostLine,
    GpuDay,
    bills,
    charges,
    cost_lines,
    price_of,
    why_so_much,
)
from turnout.tenants.gpu_time_rules import GpuCell, GpuState
from turnout.tenants.usage_rules import UsageRow, Used

DAY = "2026-11-15"
H100 = "NVIDIA H100 80GB HBM3"
PRICES = {"H100": 3.6, "H100 80GB": 7.2, "*": 1.8}
ACME, OTHER = TenantId("acme"), TenantId("other")


@pytest.mark.parametrize(
    ("kind", "price"), [(H100, 7.2), ("NVIDIA H100 NVL", 3.6), ("NVIDIA A10", 1.8), ("cpu", 0.0)]
)
def test_the_longest_name_in_the_prices_counts(kind: str, price: float) -> None:
    assert price_of(PRICES, kind) == price
    assert price_of({}, kind) == 0.0
    assert price_of({"cpu": 0.1}, kind) == (0.1 if kind == "cpu" else 0.0)


@pytest.mark.parametrize("name", ["h100", "H100", "nvidia h100"])
def test_prices_are_found_by_another_case(name: str) -> None:
    assert price_of({name: 3.6, "*": 1.8}, "NVIDIA H100 NVL") == 3.6
    assert price_of({name: 3.6, "*": 1.8}, "nvidia h100 nvl") == 3.6


def test_only_a_machine_without_gpus_costs_what_cpu_says() -> None:
    prices = {"cpu": 0.1, "*": 1.8}
    assert (price_of(prices, "cpu"), price_of(prices, "NVIDIA CPU-like")) == (0.1, 1.8)


def cells(model: str, **seconds: float) -> dict[GpuCell, int]:
    return {GpuCell(GpuState(state), H100, model): int(1000 * s) for state, s in seconds.items()}


def test_a_model_s_time_is_divided_by_the_work_of_its_tenants() -> None:
    day = GpuDay(DAY, cells("m", busy=100, loading=20, idle=80), work_ms={"m": 4000})
    rows = [
        UsageRow(DAY, ACME, "m", Used(videos=3, work_ms=3000)),
        UsageRow(DAY, OTHER, "m", Used(videos=1, work_ms=1000)),
    ]
    mine, theirs = charges(rows, [day], PRICES, everyone=True)
    assert (mine.bill.seconds.held, mine.bill.seconds.busy, mine.bill.seconds.idle) == (150, 75, 60)
    assert mine.bill.cost.held == pytest.approx(150 * 7.2 / 3600)
    assert theirs.bill.seconds.held == 50
    assert charges(rows[:1], [day], PRICES, everyone=False) == [mine], "a tenant sees the same of its own"


def test_nobody_pays_for_more_than_there_was() -> None:
    day = GpuDay(DAY, cells("m", busy=100), work_ms={"m": 1000})
    more = UsageRow(DAY, ACME, "m", Used(work_ms=3000))  # the table was read before its last work was written
    assert charges([more], [day], PRICES, everyone=False)[0].bill.seconds.held == 100
    unknown = GpuDay(DAY, cells("m", busy=100))
    assert charges([more], [unknown], PRICES, everyone=False)[0].bill.seconds.held == 0
    assert charges([more], [], PRICES, everyone=False)[0].bill.seconds.held == 0, "no table of that day"


def test_as_many_tokens_asked_as_answered_are_tokens() -> None:
    day = GpuDay(DAY, cells("m", busy=100), work_ms={"m": 1})
    row = UsageRow(DAY, ACME, "m", Used(prompt_tokens=5, completion_tokens=5, work_ms=1))
    line = cost_lines(charges([row], [day], PRICES, everyone=True), lambda one: one.tenant)["acme"]
    assert line.per_million_tokens == pytest.approx(0.2 * 1e5)


def test_what_nobody_used_is_the_service_s() -> None:
    day = GpuDay(DAY, cells("m", idle=60) | cells("", free=30))
    (charge,) = charges([], [day], PRICES, everyone=True)
    assert (charge.row, charge.bill.seconds.idle) == (UsageRow(DAY, SERVICE, "m", Used()), 60)
    assert charges([], [day], PRICES, everyone=False) == []
    assert bills(day.by_model, PRICES)[""].cost.unused == pytest.approx(0.06)


def test_cost_a_video_and_a_million_tokens() -> None:
    day = GpuDay(DAY, cells("wan", busy=1000, idle=1000) | cells("llm", busy=500))
    rows = [
        UsageRow(DAY, ACME, "wan", Used(videos=4, work_ms=10)),
        UsageRow(
            DAY, ACME, "llm", Used(requests=2, prompt_tokens=400_000, completion_tokens=100_000, work_ms=10)
        ),
    ]
    line = cost_lines(charges(rows, [day], PRICES, everyone=True), lambda row: row.tenant)["acme"]
    assert line.per_video == pytest.approx(1.0)
    assert line.per_million_tokens == pytest.approx(2.0)


@given(
    st.dictionaries(st.sampled_from("abc"), st.tuples(*[st.integers(0, 10**7)] * 4), min_size=1),
    st.lists(
        st.tuples(st.sampled_from(["t1", "t2", "t3"]), st.sampled_from("abc"), st.integers(0, 10**6)),
        max_size=9,
    ),
)
def test_the_parts_of_all_add_up_to_what_was_held(
    held: dict[str, tuple[int, ...]], work: list[tuple[str, str, int]]
) -> None:
    states = (GpuState.BUSY, GpuState.LOADING, GpuState.IDLE, GpuState.ASLEEP)
    table = {
        GpuCell(state, H100, model): ms
        for model, times in held.items()
        for state, ms in zip(states, times, strict=True)
    }
    rows = {(t, m): UsageRow(DAY, TenantId(t), m, Used(work_ms=ms)) for t, m, ms in work}
    charged = charges(rows.values(), [GpuDay(DAY, table)], PRICES, everyone=True)
    assert sum(c.bill.seconds.held for c in charged) == pytest.approx(sum(table.values()) / 1000)
    by_model = cost_lines(charged, lambda row: row.model)
    for model, times in held.items():
        assert by_model.get(model, CostLine()).bill.seconds.held == pytest.approx(sum(times) / 1000)


def test_it_is_said_why_a_tenant_s_videos_cost_more() -> None:
    day = GpuDay(DAY, cells("wan", busy=60, loading=40), divided={(GpuState.BUSY, "wan"): 60_000})
    rows = [
        UsageRow(DAY, ACME, "wan", Used(videos=1, attempts=2, busy_ms=30_000, loading_ms=40_000)),
        UsageRow(DAY, OTHER, "wan", Used(videos=1, attempts=1, busy_ms=30_000)),
    ]
    charged = charges(rows, [day], PRICES, everyone=True)
    lines, total = cost_lines(charged, lambda row: row.tenant), cost_lines(charged, lambda _: "all")["all"]
    assert why_so_much(lines["acme"], total) == (
        "a video took 70.0 GPU-seconds (30.0 busy, 40.0 loading) and 2.0 attempts; the mean is 50.0: +20.0 loading"
    )
    assert why_so_much(lines["other"], total) == (
        "a video took 30.0 GPU-seconds (30.0 busy); the mean is 50.0: -20.0 loading"
    )
    assert (
        why_so_much(total, total)
        == "a video took 50.0 GPU-seconds (30.0 busy, 20.0 loading) and 1.5 attempts"
    )
    assert why_so_much(CostLine(), total) is None


def test_loading_that_waits_for_its_first_user_is_not_another_s_meanwhile() -> None:
    day = GpuDay(DAY, cells("m", busy=10, loading=40), waiting_ms={"m": 40_000})
    rows = [UsageRow(DAY, ACME, "m", Used(work_ms=5, busy_ms=10_000))]
    service, mine = charges(rows, [day], PRICES, everyone=True)
    assert (service.row.tenant, service.bill.seconds.loading) == (SERVICE, 40)
    assert mine.bill.seconds.held == 10
