"""What tenants spent is added up by month, published for the gateways, and told to webhooks once."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.conftest import Stores
from tests.tasks.test_webhooks import SECRET, Receiver, deliver, receiving, signature_of

from turnout.fleet.machine_rules import WorkerId
from turnout.fleet.publication import Publication
from turnout.tasks.task_rules import TenantId
from turnout.tenants.budget_accounts import BudgetAccounts
from turnout.tenants.budget_rules import Budget, BudgetLevel
from turnout.tenants.gpu_time_rules import GpuBooking, GpuCell, GpuState
from turnout.tenants.usage_rules import UsageRow, Used

ACME, OTHER = TenantId("acme"), TenantId("other")


def at(day: str) -> float:
    return datetime.fromisoformat(f"{day}T12:00:00+00:00").astimezone(UTC).timestamp()


@dataclass
class Scene:
    """One GPU that costs 1 an hour; the clock stands where it is set."""

    stores: Stores
    configured: dict[str, Budget]
    now: float = at("2026-11-05")
    accounts: BudgetAccounts = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new manager, which remembers nothing."""
        stores = self.stores
        self.accounts = BudgetAccounts(
            stores.tenants.usage,
            stores.tenants.budgets,
            self.configured,
            {"*": 1.0},
            "EUR",
            stores.outbox,
            lambda: self.now,
        )

    async def spend(self, day: str, hours: float, tenant: TenantId = ACME) -> None:
        """All of a model's time of that day is the tenant's."""
        await self.stores.tenants.usage.add(
            f"{day}-{tenant}-{hours}", [UsageRow(day, tenant, f"m-{tenant}", Used(work_ms=1))]
        )
        await self.stores.mutex.hold("fleet", "m1", 60)
        cell = GpuCell(GpuState.BUSY, "X", f"m-{tenant}")
        booking = GpuBooking(day, {}, {("w-1", cell): int(hours * 3_600_000)})
        assert await self.stores.fleet.manager_state.publish("fleet", "m1", Publication(gpu_time=booking))

    async def spent(self) -> dict[str, tuple[float, BudgetLevel]]:
        await self.accounts.look()
        return {
            t: (round(s.spent, 6), s.level)
            for t, s in (await self.stores.tenants.budgets.standings()).items()
        }

    async def tell(self) -> None:
        """What the manager does every few seconds."""
        await self.accounts.look()
        await deliver(self.stores, self.now)


async def test_what_is_taken_back_of_a_day_that_is_over_counts_no_more(stores: Stores) -> None:
    scene = Scene(stores, {"acme": Budget(10)})
    await scene.spend("2026-11-01", 50)
    assert await scene.spent() == {"acme": (50.0, BudgetLevel.EXCEEDED)}
    await stores.tenants.usage.take_back(WorkerId("w-1"), ["2026-11"])
    assert await scene.spent() == {"acme": (0.0, BudgetLevel.OK)}


async def test_the_days_of_a_month_are_added_up_and_a_new_month_begins_with_nothing(stores: Stores) -> None:
    scene = Scene(stores, {"acme": Budget(10)})
    assert await scene.spent() == {"acme": (0.0, BudgetLevel.OK)}
    await scene.spend("2026-10-31", 50)
    await scene.spend("2026-11-01", 3)
    await scene.spend("2026-11-05", 4)
    scene.restart()  # closed days are read once
    assert await scene.spent() == {"acme": (7.0, BudgetLevel.OK)}
    await scene.spend("2026-11-05", 1.5)
    assert await scene.spent() == {"acme": (8.5, BudgetLevel.WARNING)}
    await scene.spend("2026-11-04", 2)  # written late
    assert await scene.spent() == {"acme": (10.5, BudgetLevel.EXCEEDED)}
    scene.now = at("2026-12-01")
    assert await scene.spent() == {"acme": (0.0, BudgetLevel.OK)}


async def test_who_has_no_budget_of_its_own_has_that_of_everyone(stores: Stores) -> None:
    scene = Scene(stores, {"*": Budget(2), "rich": Budget(500)})
    await scene.spend("2026-11-05", 1.9)
    await scene.spend("2026-11-03", 0.5, OTHER)
    assert await scene.spent() == {
        "acme": (1.9, BudgetLevel.WARNING),
        "other": (0.5, BudgetLevel.OK),
        "rich": (0.0, BudgetLevel.OK),
    }
    await stores.tenants.budgets.put(ACME, Budget(1))
    assert (await scene.spent())["acme"] == (1.9, BudgetLevel.EXCEEDED)
    assert await stores.tenants.budgets.remove(ACME) and not await stores.tenants.budgets.remove(ACME)
    assert (await scene.spent())["acme"] == (1.9, BudgetLevel.WARNING)


def told(receiver: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for _, body in receiver.got]


async def test_a_webhook_is_told_of_each_level_once_whatever_becomes_of_the_manager(stores: Stores) -> None:
    async with receiving(500, 200) as receiver:
        scene = Scene(stores, {"acme": Budget(10, webhook=receiver.url)})
        await scene.spend("2026-11-05", 8.2)
        await scene.tell()
        await scene.tell()  # too early to try again
        assert len(receiver.got) == 1
        scene.now += 60
        await scene.tell()
        for _ in range(2):
            scene.restart()
            scene.now += 60
            await scene.tell()
        assert len(receiver.got) == 2
        (first, _), (headers, body) = receiver.got
        assert body == receiver.got[0][1]
        assert headers["webhook-id"] == first["webhook-id"] == "evt_budget_acme_2026-11_warning"
        assert headers["webhook-signature"] == signature_of(headers, body, SECRET)
        assert told(receiver)[1]["type"] == "budget.warning"
        assert told(receiver)[1]["data"] == {
            "tenant": "acme",
            "month": "2026-11",
            "spent": 8.2,
            "budget": 10.0,
            "currency": "EUR",
            "refusing": False,
        }
        await scene.spend("2026-11-05", 5)
        await scene.tell()
        await scene.tell()
        assert [message["type"] for message in told(receiver)[2:]] == ["budget.exceeded"]
        assert told(receiver)[2]["data"]["refusing"]


async def test_each_month_is_told_anew(stores: Stores) -> None:
    async with receiving(200) as receiver:
        scene = Scene(stores, {"acme": Budget(10, webhook=receiver.url)})
        for day in ("2026-11-05", "2026-12-02"):
            scene.now = at(day)
            await scene.spend(day, 9)
            for _ in range(2):
                await scene.tell()
        assert [(message["type"], message["data"]["month"]) for message in told(receiver)] == [
            ("budget.warning", "2026-11"),
            ("budget.warning", "2026-12"),
        ]
        assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 2


async def test_a_webhook_that_cannot_be_read_is_set_aside_and_the_next_is_sent(stores: Stores) -> None:
    async with receiving(200) as receiver:
        scene = Scene(stores, {name: Budget(1, webhook=receiver.url) for name in ("acme", "other")})
        for tenant in (ACME, OTHER):
            await scene.spend("2026-11-05", 2, tenant)
        await scene.accounts.look()
        messages = stores.link.keys.webhook_messages()
        await stores.link.client.hset(messages, "evt_budget_acme_2026-11_exceeded", b"{")
        await scene.tell()
        got = sorted((message["data"]["tenant"], message["type"]) for message in told(receiver))
        assert got == [
            ("acme", "budget.warning"),
            ("other", "budget.exceeded"),
            ("other", "budget.warning"),
        ], "the warning is told, too, if all is spent before anybody looked"
        assert await stores.dead_records.count() == 1
        assert (await stores.fleet.status.figures()).webhooks == 0
        assert not await stores.link.client.exists(messages)
