"""Who pays for GPU time is decided as it passes: no midnight, month or time zone moves money between tenants."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Stores, make_task

from turnout.fleet.publication import Publication
from turnout.tasks.lease_rules import Overdue
from turnout.tasks.task_rules import Finished, GangId, Interrupted, Limits, Result, TenantId
from turnout.tenants.gpu_cost_rules import charges, cost_lines
from turnout.tenants.gpu_division import GpuDivider
from turnout.tenants.gpu_division_rules import SERVICE, GpuPart, LastUsers, divide, part_of
from turnout.tenants.gpu_time_rules import GpuBooking, GpuCell, GpuState
from turnout.tenants.usage_rules import UsageRow, Used, day_of

ALICE, BOB = TenantId("alice"), TenantId("bob")
BUSY, LOADING, IDLE = GpuState.BUSY, GpuState.LOADING, GpuState.IDLE
DAY, NEXT = "2026-11-30", "2026-12-01"


def at(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def divided(
    parts: dict[tuple[str, GpuState], int],
    work: dict[TenantId, int],
    last: LastUsers | None = None,
    now: float = 1000.0,
) -> dict[tuple[GpuState, TenantId], int]:
    undivided = {GpuPart(day, state, "m"): ms for (day, state), ms in parts.items()}
    division = divide(undivided, {"m": work}, {"m": last} if last else {}, {"m": 60.0}, now, (DAY, NEXT))
    return {(part.state, tenant): ms for (part, tenant), ms in division.parts.items()}


def test_time_is_divided_by_the_work_of_the_same_seconds() -> None:
    assert divided({(DAY, BUSY): 10, (DAY, IDLE): 3}, {ALICE: 2, BOB: 1}) == {
        (BUSY, ALICE): 6,
        (BUSY, BOB): 4,
        (IDLE, ALICE): 2,
        (IDLE, BOB): 1,
    }


def test_idling_is_the_last_users_until_the_model_would_have_left_and_then_the_service_s() -> None:
    last = LastUsers(1000.0, {ALICE: 5})
    assert divided({(DAY, IDLE): 9}, {}, last, now=1060.0) == {(IDLE, ALICE): 9}
    assert divided({(DAY, IDLE): 9}, {}, last, now=1100.0) == {(IDLE, SERVICE): 9}
    assert divided({(DAY, IDLE): 9}, {}) == {(IDLE, SERVICE): 9}


def test_loading_waits_for_the_first_that_work_also_over_midnight() -> None:
    last = LastUsers(1000.0, {BOB: 5})
    assert divided({(DAY, LOADING): 9, (NEXT, IDLE): 1}, {}, last) == {}, "bob did not want it loaded"
    assert divided({(DAY, LOADING): 9, (NEXT, IDLE): 1}, {ALICE: 1}, last) == {
        (LOADING, ALICE): 9,
        (IDLE, ALICE): 1,
    }
    assert divided({(DAY, LOADING): 9, (NEXT, IDLE): 300_000}, {}) == {
        (LOADING, SERVICE): 9,
        (IDLE, SERVICE): 300_000,
    }, "nobody came"
    assert divided({("2026-11-28", LOADING): 9}, {}) == {(LOADING, SERVICE): 9}, "long ago"


def test_a_part_is_read_as_it_was_written() -> None:
    part = GpuPart(DAY, IDLE, "org/model:7b")
    assert part_of(part.name) == part
    assert part_of("share:free:m") is None and part_of("nonsense") is None
    assert part_of(f"{DAY}:idle") is None and part_of(f"{DAY}:idle:") == GpuPart(DAY, IDLE, "")


def test_who_worked_last_is_remembered_with_how_long() -> None:
    work = {"m": {ALICE: 5, BOB: 0}, "idle": {ALICE: 0}, "none": {}}
    assert divide({}, work, {}, {}, 7.0, ()).users == {"m": LastUsers(7.0, {ALICE: 5})}
    many = {TenantId(f"t{n:03}"): 1 + n for n in range(300)}
    kept = divide({}, {"m": many}, {}, {}, 7.0, ()).users["m"].work_ms
    assert len(kept) == 200 and min(kept.values()) == 101, "those who worked most"


def test_each_model_s_time_is_its_own_users_and_whole_milliseconds_add_up() -> None:
    parts = {GpuPart(DAY, BUSY, "m"): 10, GpuPart(DAY, BUSY, "n"): 7, GpuPart(NEXT, IDLE, "m"): 1}
    work = {"m": {BOB: 1, ALICE: 1, TenantId("carol"): 1}, "n": {BOB: 9}}
    told = divide(parts, work, {}, {}, 7.0, ()).parts
    assert {(p.model, p.day, t): ms for (p, t), ms in told.items()} == {
        ("m", DAY, ALICE): 3,
        ("m", DAY, BOB): 3,
        ("m", DAY, TenantId("carol")): 4,
        ("m", NEXT, TenantId("carol")): 1,
        ("n", DAY, BOB): 7,
    }


def test_how_long_a_model_waits_for_work_is_its_own() -> None:
    last = LastUsers(1000.0, {ALICE: 5})
    assert divided({(DAY, IDLE): 9}, {}, last, now=1090.0) == {(IDLE, ALICE): 9}, "30 s to leave its GPUs"
    assert divided({(DAY, IDLE): 9}, {}, last, now=1090.1) == {(IDLE, SERVICE): 9}
    assert divided({(DAY, IDLE): 9}, {}, LastUsers(1000.0, {}), now=1000.0) == {(IDLE, SERVICE): 9}
    unknown = divide({GpuPart(DAY, IDLE, "m"): 9}, {}, {"m": last}, {}, 1030.0, ())
    assert list(unknown.parts) == [(GpuPart(DAY, IDLE, "m"), ALICE)], (
        "a model that is gone waits no longer than that"
    )
    assert divided({(DAY, LOADING): 9, (NEXT, IDLE): 299_999}, {}) == {}
    assert divided({(DAY, LOADING): 9, (NEXT, IDLE): 1}, {ALICE: 0}) == {}, "no work is none"


SPANS = st.lists(
    st.tuples(
        st.sampled_from([BUSY, LOADING, IDLE]), st.integers(1, 30_000), st.integers(0, 9), st.integers(0, 9)
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(SPANS, st.integers(0, 86_400))
def test_the_time_of_day_changes_what_nobody_pays(
    spans: list[tuple[GpuState, int, int, int]], shift_s: int
) -> None:
    """The same hours, begun at any time of any day, cost everybody the same."""
    paid = [_paid(spans, begin) for begin in (at("2026-11-30T00:00:00+00:00"), at("2026-11-30") + shift_s)]
    assert paid[0] == paid[1]
    assert sum(paid[0].values()) <= sum(ms for _, ms, _, _ in spans)


def _paid(spans: list[tuple[GpuState, int, int, int]], now: float) -> Counter[TenantId]:
    paid: Counter[TenantId] = Counter()
    undivided: Counter[GpuPart] = Counter()
    last: dict[str, LastUsers] = {}
    for state, ms, alice, bob in spans:
        now += ms / 1000
        undivided[GpuPart(day_of(now), state, "m")] += ms
        work = {"m": {ALICE: alice, BOB: bob}}
        division = divide(undivided, work, last, {"m": 20.0}, now, (day_of(now), day_of(now - 86_400)))
        last |= division.users
        for (part, tenant), own in division.parts.items():
            paid[tenant] += own
            undivided[part] -= own
        undivided = +undivided
    return paid


class Night:
    """A GPU at 1.80 an hour over midnight: the clock stands where it is set."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.now = at("2026-11-30T23:00:00+00:00")
        self.divider = GpuDivider(stores.link, stores.fleet.models, lambda: self.now)

    async def passes(self, ms: int, state: GpuState = BUSY) -> None:
        """A few seconds, as the manager books them."""
        self.now += ms / 1000
        booking = GpuBooking(day_of(self.now), {}, {("w", GpuCell(state, "X", "wan-tiny")): ms})
        await self.stores.mutex.hold("fleet", "m", 60)
        assert await self.stores.fleet.manager_state.publish("fleet", "m", Publication(gpu_time=booking))

    async def costs(self, tenant: TenantId | None = None) -> dict[str, float]:
        usage = self.stores.tenants.usage
        rows, days = await usage.read([DAY, NEXT], tenant), await usage.gpu_days([DAY, NEXT], workers=False)
        charged = charges(rows, days, {"*": 1.8}, everyone=tenant is None)
        lines = cost_lines(charged, lambda row: row.tenant)
        return {name: line.bill.cost.held for name, line in lines.items()}


async def test_a_render_over_midnight_is_paid_by_the_one_whose_it_is(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alice renders from 23:00 to 00:10, bob chats for two seconds before midnight."""
    night = Night(stores)
    monkeypatch.setattr("turnout.tasks.task_queue.time.time", lambda: night.now)
    task = make_task(tenant=ALICE, model="wan-tiny")
    await stores.tasks.submit(task, Limits())
    claimed = await stores.queue.claim("wan-tiny", GangId("g"), Limits())
    assert claimed is not None
    for minute in range(70):
        await night.passes(60_000)
        if minute == 30:
            row = UsageRow(day_of(night.now), BOB, "wan-tiny", Used(work_ms=2000))
            await stores.tenants.usage.add("b", [row])
        if minute < 69:
            assert await stores.queue.renew(task.id, GangId("g"), claimed.attempt)
        else:
            done = Finished(night.now, claimed.attempt, Result("v", "t", "s", 1))
            await stores.tasks.apply(task.id, done)
        await night.divider.look()
    costs = await night.costs()
    assert sum(costs.values()) == pytest.approx(70 * 60 * 1.8 / 3600)
    assert costs["bob"] == pytest.approx(60 * 2 / 62 * 1.8 / 3600, rel=1e-3), "his part of one minute"
    assert costs["alice"] == pytest.approx(2.1 - costs["bob"])
    assert await night.costs(BOB) == {"bob": pytest.approx(costs["bob"])}
    (last,) = [row for row in await stores.tenants.usage.read([NEXT], ALICE)]
    assert (last.used.render_ms, last.used.videos) == (660_000, 1), "eleven of its minutes end on that day"


async def test_two_managers_divide_once_and_what_was_booked_before_there_was_a_division_stays(
    stores: Stores,
) -> None:
    night = Night(stores)
    await night.passes(1000)
    keys, client = stores.link.keys, stores.link.client
    await client.delete(keys.gpu_undivided())  # as an earlier version booked it
    await stores.tenants.usage.add("a", [UsageRow(DAY, ALICE, "wan-tiny", Used(work_ms=100))])
    await client.delete(keys.gpu_work())
    assert await night.costs() == {"alice": pytest.approx(0.0005)}
    await night.passes(1000)
    await stores.tenants.usage.add("b", [UsageRow(DAY, BOB, "wan-tiny", Used(work_ms=1))])
    for _ in range(2):
        await night.divider.look()
    assert not await client.hlen(keys.gpu_undivided()) and not await client.hlen(keys.gpu_work())
    costs = await night.costs()
    assert costs["bob"] == pytest.approx(0.0005, rel=0.02) and sum(costs.values()) == pytest.approx(0.001)


async def test_waiting_between_attempts_and_after_the_last_sign_of_life_is_no_work(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": at("2026-11-30T12:00:00+00:00")}
    monkeypatch.setattr("turnout.tasks.task_queue.time.time", lambda: clock["now"])
    task = make_task(tenant=ALICE)
    await stores.tasks.submit(task, Limits())

    async def attempt() -> int:
        claimed = await stores.queue.claim(task.model, GangId("g"), Limits())
        assert claimed is not None
        clock["now"] += 5
        assert await stores.queue.renew(task.id, GangId("g"), claimed.attempt)
        return claimed.attempt

    await attempt()
    clock["now"] += 30
    (held,) = await stores.queue.leases(task.model)
    assert await stores.queue.take_back(Overdue(held.turn, held.task, counts=True))
    clock["now"] += 600
    second = await attempt()
    clock["now"] += 2
    await stores.tasks.apply(task.id, Interrupted(clock["now"], second, "rank 1 died"))
    clock["now"] += 600
    third = await attempt()
    clock["now"] += 1
    await stores.tasks.apply(task.id, Finished(clock["now"], third, Result("v", "t", "s", 1)))
    (row,) = await stores.tenants.usage.read([DAY], ALICE)
    assert (row.used.render_ms, row.used.work_ms, row.used.attempts) == (5000 + 7000 + 6000, 18_000, 3)
