"""The work of chat requests is written while it is done, whenever they end."""

from collections.abc import Sequence

from tests.conftest import Stores

from turnout.chat.chat_usage import ChatUsage
from turnout.tasks.task_rules import TenantId
from turnout.tenants.usage_rules import UsageRow

ALICE, BOB = TenantId("alice"), TenantId("bob")


async def work_ms(stores: Stores, days: Sequence[str]) -> dict[tuple[str, str], int]:
    rows: list[UsageRow] = await stores.tenants.usage.read(days)
    return {(row.day, row.tenant): row.used.work_ms for row in rows}


async def test_a_long_answer_counts_on_each_day_on_which_it_is_given(stores: Stores) -> None:
    wall, clock = 1_796_083_200.0 - 10, 0.0  # before 2026-12-01
    usage = ChatUsage(stores.tenants.usage, "gw", lambda: wall, lambda: clock)
    usage.seated(ALICE, "m")
    clock, wall = clock + 4, wall + 4
    usage.seated(ALICE, "m")
    usage.seated(BOB, "m")
    clock, wall = clock + 4, wall + 4
    usage.left(ALICE, "m")
    usage.add(ALICE, "m", 1, 2, 0)
    await usage.flush()
    assert await work_ms(stores, ["2026-11-30"]) == {
        ("2026-11-30", "alice"): 12_001,
        ("2026-11-30", "bob"): 4000,
    }
    clock, wall = clock + 60, wall + 60
    await usage.flush()
    usage.left(ALICE, "m")
    usage.left(BOB, "m")
    usage.add(ALICE, "m", 1, 2, 0)
    await usage.flush()
    assert await work_ms(stores, ["2026-12-01"]) == {
        ("2026-12-01", "alice"): 60_001,
        ("2026-12-01", "bob"): 60_000,
    }
    clock += 60
    await usage.flush()
    assert sum((await work_ms(stores, ["2026-12-01"])).values()) == 120_001, "nobody is there any more"
