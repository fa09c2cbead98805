"""What a running service charges when a month ends, under a clock that is set and in a time zone far from UTC."""

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.cluster import clocks_in
from tests.conftest import wait_until
from tests.held_model import Gate, held_model
from tests.pace import patient
from tests.service import Service

pytestmark = pytest.mark.timeout(900)

MIDNIGHT = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp())
LAST, FIRST = "2026-12-31", "2027-01-01"
SETTINGS: dict[str, Any] = {
    "gpu_prices": {"cpu": 3600},  # one unit a second
    "budgets": {"*": {"month": 1_000_000, "soft": 0.000_000_1}},
}


async def test_a_new_year_moves_no_money_between_tenants(tmp_path: Path) -> None:
    """Bob renders a short video, alice a long one over midnight; each pays for its own."""
    clock = clocks_in(tmp_path, ["all"])["all"]
    gate, models = Gate(tmp_path), {"clips": held_model(tmp_path, max_replicas=1, idle_s=7200)}
    environ = {**clock.environ, "TZ": "Pacific/Kiritimati"}
    service = Service(tmp_path / "state", {**SETTINGS, "models": models}, environ=environ)
    await service.start()
    try:
        clock.step(MIDNIGHT - 3600 - int(time.time()))  # while nothing is under way
        admin, tenants = (
            service.client(),
            {name: service.client(service.key_of(name)) for name in ("alice", "bob")},
        )

        async def usage(**query: str) -> dict[str, Any]:
            query = {"start": LAST, "end": FIRST, **query}
            return (await admin.get("/v1/usage", params=query)).raise_for_status().json()

        async def submit(tenant: str, **asked: Any) -> str:
            answer = await tenants[tenant].post(
                "/v1/videos", json={"prompt": "a red ball", "model": "clips", **asked}
            )
            return str(answer.raise_for_status().json()["id"])

        video = await submit("bob", steps=2)

        async def rendered() -> bool:
            return (await tenants["bob"].get(f"/v1/videos/{video}")).json()["status"] == "completed"

        await wait_until(rendered, "bob's video", 240)

        async def divided() -> bool:
            return any(
                line["name"] == "bob" and line["gpu_seconds"]["loading"] > 0
                for line in (await usage())["tenants"]
            )

        # Who works in the ten seconds of a division shares what was loaded in them.
        await wait_until(divided, "bob to be charged for the loading")
        gate.hold(0)
        clock.step(MIDNIGHT - 45 - int(time.time()))  # again: bob's video took as long as the machine is slow
        video, began = await submit("alice", steps=100), time.monotonic()

        async def worked(day: str) -> float:
            rows = (await usage(tenant="alice"))["data"]
            return sum(row["work_seconds"] for row in rows if row["day"] == day)

        async def after_midnight() -> bool:
            gate.hold(int(time.monotonic() - began))  # a step a second
            return await worked(FIRST) >= 5

        await wait_until(after_midnight, "alice's video to be rendered in the new year", 240)
        assert await worked(LAST) > 0, "work counts on the day on which it is done"
        await tenants["alice"].post(f"/v1/videos/{video}/cancel")
        gate.open()

        async def settled() -> bool:
            told = await usage()
            busy = {line["name"]: line["gpu_seconds"]["busy"] for line in told["tenants"]}
            return busy.get("alice", 0.0) >= 0.8 * (await worked(LAST) + await worked(FIRST))

        await wait_until(settled, "GPU time to be divided", 60)
        told = await usage()
        lines = {line["name"]: line for line in told["tenants"]}
        rendered_s = sum(row["render_seconds"] for row in told["data"] if row["tenant"] == "bob")
        # GPU time is divided every 10 s, by the work of those: so much may be another's.
        assert lines["bob"]["gpu_seconds"]["busy"] <= rendered_s + 10, lines
        assert "loading" in lines["bob"]["why"], "it was loaded for bob alone"
        assert sum(row["cost"]["held"] for row in told["data"]) == pytest.approx(
            told["total"]["cost"]["held"]
        )

        async def spent() -> bool:
            found = {b["tenant"]: b for b in (await admin.get("/v1/budgets")).json()["data"]}
            return found.get("alice", {}).get("period") == "2027-01" and found["alice"]["spent"] > 0

        await wait_until(spent, "the budgets of the new month", 60)
        standing = {b["tenant"]: b for b in (await admin.get("/v1/budgets")).json()["data"]}
        assert standing.get("bob", {"spent": 0})["spent"] <= lines["bob"]["cost"]["held"]
        assert standing["alice"]["level"] == "warning"
        assert (await admin.get("/v1/usage", params={"end": FIRST})).json()["start"] == "2026-12-26"
        for client in (admin, *tenants.values()):
            await client.aclose()
        assert as_typed(service, clock.environ, "America/Los_Angeles")[-1] == FIRST
    finally:
        gate.open()
        await service.stop()


def as_typed(service: Service, clock: dict[str, str], zone: str) -> list[str]:
    """The days of `turnout usage --days 2`, asked for in a time zone whose date is another."""
    environ = {
        **os.environ,
        **clock,
        "TZ": zone,
        "TURNOUT_URL": service.url,
        "TURNOUT_API_KEY": service.api_key,
    }
    command = [sys.executable, "-m", "turnout", "usage", "--days", "2", "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, check=True, timeout=patient(120))
    return sorted({row["day"] for row in json.loads(done.stdout)["data"]})
