"""Who waits for whom in a model's line, on a running service."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import wait_until
from tests.service import Service, running_service
from tests.worker.conftest import FAKE_ENGINE

pytestmark = pytest.mark.timeout(180)
PATH = "/v1/chat/completions"


@asynccontextmanager
async def one_seat(tmp_path: Path, *arguments: str) -> AsyncIterator[Service]:
    """A model that answers one request at a time."""
    command = [sys.executable, str(FAKE_ENGINE), "{port}", *arguments]
    model = {
        "engine": "command",
        "command": command,
        "concurrency": 1,
        "model_name": "fake",
        "memory_bytes": 100_000_000,
    }
    async with running_service(tmp_path, models={"m": model}) as service:
        yield service


async def ask(service: Service, token: str, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=120, headers={"Authorization": f"Bearer {token}"}) as http:
        return await http.post(f"{service.url}{PATH}", json={"model": "m", **fields})


async def key_of(service: Service, tenant: str) -> str:
    async with httpx.AsyncClient(headers=service.headers) as http:
        made = await http.post(f"{service.url}/v1/keys", json={"tenant": tenant})
        return str(made.json()["token"])


async def figure(service: Service, name: str) -> int:
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"{service.url}/metrics")).text
    found = [line for line in text.splitlines() if line.startswith(f'turnout_chat_{name}{{model="m"}}')]
    return int(float(found[0].split()[-1])) if found else 0


async def is_running(service: Service) -> bool:
    return await figure(service, "running") == 1


async def line_is(service: Service, count: int) -> bool:
    return await figure(service, "waiting") == count


async def test_a_tenant_with_one_request_is_not_behind_anothers_two_dozen(tmp_path: Path) -> None:
    async with one_seat(tmp_path) as service:
        many, one = await key_of(service, "many"), await key_of(service, "one")
        gate = tmp_path / "gate"
        answered: list[str] = []

        async def timed(tenant: str, token: str, **fields: Any) -> None:
            assert (await ask(service, token, **fields)).status_code == 200
            answered.append(tenant)

        async with asyncio.TaskGroup() as group:
            group.create_task(timed("many", many, until=str(gate)))
            await wait_until(lambda: is_running(service), "the model to be awake and busy", 60)
            for _ in range(23):
                group.create_task(timed("many", many))
            await wait_until(lambda: line_is(service, 23), "the line", 60)
            group.create_task(timed("one", one))
            await wait_until(lambda: line_is(service, 24), "the line", 60)
            gate.touch()
        assert "one" in answered[:4], answered


async def test_a_request_that_met_one_503_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with one_seat(tmp_path, "--busy-once") as service:
        answers: list[str] = []

        async def timed(name: str) -> None:
            answers.append(f"{name} {(await ask(service, service.api_key)).status_code}")

        async with asyncio.TaskGroup() as group:
            group.create_task(timed("first"))
            await wait_until(lambda: line_is(service, 1), "the first request to wait for the model", 60)
            for n in range(5):
                group.create_task(timed(f"newcomer {n}"))
        assert answers[-1] == "first 200", answers
        assert sorted(answers[:-1]) == [f"newcomer {n} 200" for n in range(5)]
