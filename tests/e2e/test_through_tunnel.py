"""A worker that nobody can reach serves through its tunnel: real gateway, real worker, the unmodified client."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from tests.conftest import wait_until
from tests.e2e.test_chat_path import ENDLESS
from tests.service import Service
from tests.workers import JoinedWorker, busy, joined, list_workers

pytestmark = pytest.mark.timeout(300)

HELLO: Any = [{"role": "user", "content": "Tell a long story."}]


async def test_a_worker_that_cannot_be_reached_says_so_and_ends(
    own_worker_aside: Service, tmp_path: Path
) -> None:
    how = ("--listen-port", "0", "--public-url", "http://127.0.0.1:9")
    async with joined(own_worker_aside, tmp_path / "box", *how, WORKER_ID="box") as worker:
        assert await worker.ended() == 2
    said = (tmp_path / "box.log").read_text()
    assert "tried http://127.0.0.1:9/probe/" in said and "Traceback" not in said
    assert "box" not in {worker["name"] for worker in await list_workers(own_worker_aside)}


async def test_a_tunnelled_worker_streams_is_cancelled_and_comes_back(
    own_worker_aside: Service, tmp_path: Path
) -> None:
    service = own_worker_aside
    async with (
        joined(service, tmp_path / "far", "--tunnel", WORKER_ID="far"),
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key=service.api_key, max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(
            model="chat",
            messages=HELLO,
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        assert sum(bool(c.choices and c.choices[0].delta.content) for c in chunks) >= 3
        assert ("far", "tunnel:") in [(w["name"], w["url"]) for w in await list_workers(service)]

        plain = [
            client.chat.completions.create(model="chat", messages=HELLO, max_tokens=2) for _ in range(12)
        ]
        assert all(answer.usage for answer in await asyncio.gather(*plain))

        stream = await client.chat.completions.create(model="chat", messages=HELLO, stream=True, **ENDLESS)
        await anext(aiter(stream))
        await wait_until(lambda: says(service, 1), "the worker to report the request")
        await stream.close()
        await wait_until(lambda: says(service, 0), "the hang-up to reach the engine")

        stream = await client.chat.completions.create(model="chat", messages=HELLO, stream=True, **ENDLESS)
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            async for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    for gateway in service.parts("gateway"):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            gateway.kill()
        answer = await client.with_options(max_retries=10).chat.completions.create(
            model="chat", messages=HELLO, max_tokens=2
        )
        assert answer.usage, "the worker dialled the new gateway"


async def says(service: Service, count: int) -> bool:
    return await busy(service) == count


async def test_a_machine_joins_by_a_code_once_and_comes_back_with_the_key_it_got(
    own_worker_aside: Service, tmp_path: Path
) -> None:
    service, home = own_worker_aside, tmp_path / "coded"
    async with httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as http:
        code = (await http.post("/workers/join-codes", json={})).json()["code"]
        worker = JoinedWorker(service, home, code, "--tunnel", WORKER_ID="coded")

        async def ids() -> list[str]:
            return [one["id"] for one in await list_workers(service) if one["name"] == "coded"]

        async def is_back(since: float) -> bool:
            found = (await http.get("/workers")).json()["data"]
            return any(
                one["name"] == "coded" and (one["heard_ago_s"] or 9.0) < time.monotonic() - since
                for one in found
            )

        async def has_joined() -> bool:
            return bool(await ids())

        await worker.start()
        try:
            await wait_until(has_joined, "the machine to join")
            first = await ids()
            await worker.kill()
            since = time.monotonic()
            await worker.start()  # with the code that was used
            await wait_until(lambda: is_back(since), "it to come back")
            assert await ids() == first, "as the same worker"
            thief = JoinedWorker(service, tmp_path / "thief", code, "--tunnel", WORKER_ID="thief")
            await thief.start()
            assert await thief.ended() == 2
            assert "join code was used" in thief.log.read_text()
            assert (await http.delete(f"/workers/{first[0]}")).json()["key_revoked"] is True
            assert await worker.ended() == 2
        finally:
            await worker.stop()
    assert not list(home.glob("**/identity.json")), "nothing is left to come back with"
