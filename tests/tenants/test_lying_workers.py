"""A worker that counts GPU time that never was, as its HTTP calls, the manager and the tenants' budgets meet it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.conftest import Stores, wait_until
from tests.fleet.test_loop import CHAT, RULES
from tests.gateways import Gateway, bearer, running

from turnout.background import BackgroundLoops
from turnout.fleet.machine_rules import WorkerId
from turnout.run.run_manager import fleet_manager
from turnout.tasks.task_rules import TenantId
from turnout.tenants.budget_accounts import BudgetAccounts
from turnout.tenants.budget_rules import Budget
from turnout.tenants.gpu_time_rules import HELD
from turnout.tenants.key_rules import Role
from turnout.tenants.usage_rules import UsageRow, Used, day_of

PRICES = {"*": 1.0, "cpu": 1.0}
BUDGETS = {"*": Budget(1000)}
GB = 10**9
LIE_MS = 4 * 10**12


@dataclass
class Liar:
    """A worker that has joined, and what it says."""

    gateway: Gateway
    id: WorkerId
    headers: dict[str, str]
    key: str
    machine: dict[str, Any]
    seen: int = 0
    replicas: tuple[dict[str, str], ...] = ()

    async def beat(self, **counts: int) -> int:
        named = {name.replace("_", ":", 2): ms for name, ms in counts.items()}
        body = {"machine": self.machine, "replicas": self.replicas, "seen": self.seen}
        answer = await self.gateway.http.post(
            f"/workers/{self.id}/heartbeat",
            json={**body, "gpu_time": {"epoch": "e", "counts": named}},
            headers=self.headers,
        )
        if answer.status_code == 200:
            told = answer.json()
            self.seen = told["version"]
            self.replicas = tuple({"id": one["replica"], "phase": "ready"} for one in told["orders"])
        return answer.status_code

    async def booked(self, **counts: int) -> None:
        """Says it, and waits until the manager has heard it."""
        assert await self.beat(**counts) == 200
        named = {name.replace("_", ":", 2): ms for name, ms in counts.items()}

        async def heard() -> bool:
            saved = (await self.gateway.stores.fleet.manager_state.saved()).gpu_reports.get(self.id)
            return saved is not None and dict(saved.counts) == named

        await wait_until(heard, "the report to be booked")


async def join(gateway: Gateway, *engines: str) -> Liar:
    machine = {
        "gpus": [],
        "memory_bytes": 8 * GB,
        "free_memory_bytes": 8 * GB,
        "engines": engines,
    }
    body = {"name": "liar", "url": "tunnel:", "machine": machine, "probe_key": "k" * 32}
    key = await gateway.key(role=Role.WORKER)
    joined = await gateway.http.post("/workers/register", json=body, headers=bearer(key))
    assert joined.status_code == 200, joined.text
    told = joined.json()
    return Liar(gateway, WorkerId(told["id"]), bearer(told["secret"]), key, machine)


@asynccontextmanager
async def managed(stores: Stores, tmp_path: Path) -> AsyncIterator[tuple[Gateway, BudgetAccounts]]:
    manager = fleet_manager(stores, "m1", RULES)
    async with running(stores, tmp_path, gpu_prices=PRICES, budgets=BUDGETS) as gateway:
        accounts = BudgetAccounts(
            stores.tenants.usage,
            stores.tenants.budgets,
            BUDGETS,
            PRICES,
            "EUR",
            stores.outbox,
            time.time,
        )
        async with BackgroundLoops({"fleet": manager.run}).running():
            yield gateway, accounts


async def held_s(stores: Stores, model: str) -> float:
    days = [day_of(time.time() - 86_400), day_of(time.time())]
    tables = await stores.tenants.usage.gpu_days(days, workers=False)
    cells = [(cell, ms) for table in tables for cell, ms in table.by_model.items()]
    return sum(ms for cell, ms in cells if cell.holder == model and cell.state in HELD) / 1000


async def test_a_worker_without_replicas_spends_no_tenants_budget(stores: Stores, tmp_path: Path) -> None:
    async with managed(stores, tmp_path) as (gateway, accounts):
        day = day_of(time.time())
        rows = [
            UsageRow(day, TenantId(name), "wan-tiny-t2v", Used(work_ms=500)) for name in ("acme", "other")
        ]
        await stores.tenants.usage.add("b", rows)
        liar = await join(gateway)
        await liar.booked()
        await liar.booked(**{"busy_X_wan-tiny-t2v": LIE_MS})
        await accounts.look()
        await gateway.inside.budgets.look()
        for token in (gateway.token, await gateway.key("other")):
            answer = await gateway.http.post(
                "/v1/videos", json={"prompt": "a red ball", "model": "wan-tiny-t2v"}, headers=bearer(token)
            )
            assert answer.status_code == 200, answer.text
        assert await held_s(stores, "wan-tiny-t2v") == 0.0


async def test_a_worker_books_what_it_was_ordered_for_the_time_that_passed_and_it_is_taken_back(
    stores: Stores, tmp_path: Path
) -> None:
    await stores.fleet.models.put(replace(CHAT, scaling=replace(CHAT.scaling, min_replicas=1)))
    async with managed(stores, tmp_path) as (gateway, _):
        began = time.monotonic()
        liar = await join(gateway, "llamacpp")
        await liar.booked()

        async def ordered() -> bool:
            return await liar.beat() == 200 and bool(liar.replicas)

        await wait_until(ordered, "an order")
        await liar.booked(busy_cpu_chat=LIE_MS)
        passed_s = time.monotonic() - began
        assert 0 < await held_s(stores, "chat") <= passed_s, "of one device"

        admin = bearer(await gateway.key("ops", Role.ADMIN))
        taking = f"/workers/{liar.id}/gpu-time"
        assert (await gateway.http.delete(taking)).status_code == 403
        key_id = liar.key.removeprefix("tk-").partition(".")[0]
        assert (await gateway.http.delete(f"/v1/keys/{key_id}", headers=admin)).status_code == 200
        assert await liar.beat(busy_cpu_chat=2 * LIE_MS) == 403
        taken = await gateway.http.delete(taking, headers=admin)
        assert taken.status_code == 200, taken.text
        assert 0 < taken.json()["seconds"]["chat"] <= passed_s
        assert await held_s(stores, "chat") == 0.0
        audit = (await gateway.http.get("/v1/audit", headers=admin)).json()["data"]
        assert ("worker.gpu_time_taken_back", liar.id) in [(one["action"], one["target"]) for one in audit]
