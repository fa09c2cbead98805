"""Who waits for whom in a model's line, on a running service."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import wait_until
from tests.pace import patient
from tests.service import Service

pytestmark = pytest.mark.timeout(180)
PATH = "/v1/chat/completions"


async def ask(service: Service, token: str, model: str, **fields: Any) -> httpx.Response:
    async with service.client(token, timeout=patient(120)) as http:
        return await http.post(PATH, json={"model": model, **fields})


async def figure(service: Service, name: str, model: str) -> int:
    async with service.client() as http:
        text = (await http.get("/metrics")).text
    found = [line for line in text.splitlines() if line.startswith(f'turnout_chat_{name}{{model="{model}"}}')]
    return int(float(found[0].split()[-1])) if found else 0


async def line_is(service: Service, model: str, count: int) -> bool:
    return await figure(service, "waiting", model) == count


async def test_a_tenant_with_one_request_is_not_behind_anothers_two_dozen(
    chatting: Service, tmp_path: Path
) -> None:
    many, one = chatting.key_of("many"), chatting.key_of("one")
    gate = tmp_path / "gate"
    answered: list[str] = []

    async def timed(tenant: str, token: str, **fields: Any) -> None:
        assert (await ask(chatting, token, "fair", **fields)).status_code == 200
        answered.append(tenant)

    async def is_running() -> bool:
        return await figure(chatting, "running", "fair") == 1

    async with asyncio.TaskGroup() as group:
        group.create_task(timed("many", many, until=str(gate)))
        await wait_until(is_running, "the model to be awake and busy", 60)
        for _ in range(23):
            group.create_task(timed("many", many))
        await wait_until(lambda: line_is(chatting, "fair", 23), "the line", 60)
        group.create_task(timed("one", one))
        await wait_until(lambda: line_is(chatting, "fair", 24), "the line", 60)
        gate.touch()
    assert "one" in answered[:4], answered


async def test_a_request_that_met_one_503_keeps_nobody_waiting(chatting: Service) -> None:
    answers: list[str] = []

    async def timed(name: str) -> None:
        answers.append(f"{name} {(await ask(chatting, chatting.api_key, 'busy')).status_code}")

    async with asyncio.TaskGroup() as group:
        group.create_task(timed("first"))
        await wait_until(lambda: line_is(chatting, "busy", 1), "the first request to wait for the model", 60)
        for n in range(5):
            group.create_task(timed(f"newcomer {n}"))
    assert answers[-1] == "first 200", answers
    assert sorted(answers[:-1]) == [f"newcomer {n} 200" for n in range(5)]
