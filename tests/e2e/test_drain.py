"""A worker that ends while chats come: what it has is finished, and what comes waits for another worker."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import wait_until
from tests.e2e.conftest import one_seat
from tests.pace import patient
from tests.service import Service, running_service
from tests.workers import joined, set_aside_its_own_worker

pytestmark = pytest.mark.timeout(300)
MAY_RUN = {"TURNOUT_ALLOW_REGISTERED_COMMANDS": "true"}
PORT = ("--listen-port", "0")
LATE_CHATS = 20


async def chat(service: Service, model: str, **fields: Any) -> httpx.Response:
    async with service.client(timeout=patient(200)) as http:
        return await http.post("/v1/chat/completions", json={"model": model, **fields})


async def worker_named(service: Service, name: str) -> dict[str, Any]:
    async with service.client() as http:
        found = (await http.get("/workers")).json()["data"]
    return next((worker for worker in found if worker["name"] == name), {})


async def test_chats_that_come_while_a_worker_ends_are_answered_by_the_next_one(tmp_path: Path) -> None:
    gate, models = tmp_path / "gate", {"first": one_seat(), "second": one_seat()}
    async with running_service(tmp_path, models=models) as service:
        await set_aside_its_own_worker(service)

        async def is_busy() -> bool:
            return any(r["busy"] for r in (await worker_named(service, "ends")).get("replicas", ()))

        async def is_told() -> bool:
            return bool((await worker_named(service, "ends"))["draining"])

        async def is_waited_for() -> bool:
            async with service.client() as http:
                shown = (await http.get("/v1/models/second")).json()
            return "waiting for" in json.dumps(shown)

        async with joined(service, tmp_path / "ends", *PORT, WORKER_ID="ends", **MAY_RUN) as ends:
            long = asyncio.create_task(chat(service, "first", until=str(gate)))
            await wait_until(is_busy, "a chat to be under way", 60)
            ends.process.terminate()
            await wait_until(is_told, "the worker to say that it ends", 60)
            late = [asyncio.create_task(chat(service, name)) for name in ("first", "second") * LATE_CHATS]
            await wait_until(is_waited_for, "chats to wait for a worker", 60)
            async with joined(service, tmp_path / "next", *PORT, WORKER_ID="next", **MAY_RUN):
                answers = await asyncio.gather(*late)
                assert [a.status_code for a in answers] == [200] * len(late), {a.text for a in answers}
                assert not long.done(), "the worker waits for what it has"
                gate.touch()
                assert (await long).status_code == 200
                assert await ends.ended() == 0
        said = [
            json.loads(line)
            for line in (service.state_dir / "logs" / "manager.log").read_text().splitlines()
            if '"model failed"' in line or '"model given up"' in line
        ]
        assert said == []
