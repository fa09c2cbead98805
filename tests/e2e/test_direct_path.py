"""Direct calls of engines, as users meet them: `turnout up`, workers that join, a real llama.cpp."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from tests.conftest import wait_until
from tests.e2e.test_chat_path import ENDLESS, HELLO, api
from tests.ports import free_port
from tests.service import Service, is_engine
from tests.workers import JoinedWorker, busy, forwarded, joined

pytestmark = pytest.mark.timeout(300)

STORY: Any = [{"role": "user", "content": "Tell a long story about a lighthouse."}]


async def stream_of(client: openai.AsyncOpenAI, **asked: Any) -> AsyncIterator[str]:
    """The pieces of one long answer."""
    stream = await client.chat.completions.create(model="chat", messages=STORY, stream=True, **asked)
    async for chunk in stream:
        if chunk.choices:
            yield chunk.choices[0].finish_reason or ""


def engine_of(worker: psutil.Process) -> tuple[psutil.Process, tuple[str, int]]:
    """The engine of a worker that has one, and where it listens."""
    for process in worker.children(recursive=True):
        if is_engine(process):
            [listening] = {c.laddr for c in process.net_connections() if c.status == psutil.CONN_LISTEN}
            return process, (listening.ip, listening.port)
    pytest.fail("the worker has no engine")


def talks_to(process: psutil.Process, address: tuple[str, int]) -> bool:
    return any(c.raddr and (c.raddr.ip, c.raddr.port) == address for c in process.net_connections())


async def went_directly(service: Service, client: openai.AsyncOpenAI, worker: psutil.Process) -> None:
    """Asks until the gateway has met the worker: until then requests go through its proxy."""
    (gateway,) = service.parts("gateway")

    async def it_did() -> bool:
        answer = await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=2)
        assert answer.choices[0].message.content is not None
        return talks_to(gateway, engine_of(worker)[1])

    await wait_until(it_did, "a request to go directly to the engine", 60)


async def test_a_gateway_that_is_killed_leaves_no_request_behind(
    own_worker_aside: Service, tmp_path: Path
) -> None:
    service = own_worker_aside
    async with joined(service, tmp_path / "w1", "--listen-port", "0") as worker, api(service) as client:
        await went_directly(service, client, worker.process)
        streams = [stream_of(client, **ENDLESS) for _ in range(3)]
        for stream in streams:
            await anext(stream)

        async def counted() -> bool:
            return await busy(service) == 3

        await wait_until(counted, "the worker to count what never passed its proxy")
        (gateway,) = service.parts("gateway")
        gateway.kill()

        async def forgotten() -> bool:
            try:
                return await busy(service) == 0
            except httpx.HTTPError:
                return False  # the next gateway is not there yet

        await wait_until(forgotten, "the dead gateway's requests to be over", 60)
        for stream in streams:
            with pytest.raises((openai.APIError, httpx.HTTPError)):
                _ = [piece async for piece in stream]
        await went_directly(service, client, worker.process)


async def test_an_engine_answers_its_gateway_alone_and_its_worker_lets_a_direct_stream_end(
    own_worker_aside: Service, tmp_path: Path
) -> None:
    service = own_worker_aside
    async with joined(service, tmp_path / "w1", "--listen-port", "0") as worker, api(service) as client:
        await went_directly(service, client, worker.process)
        engine, address = engine_of(worker.process)
        await _refuses_strangers(f"http://127.0.0.1:{address[1]}")
        _tells_no_key(service, worker, engine)
        stream = stream_of(client, **ENDLESS | {"max_tokens": 150})
        await anext(stream)
        worker.process.send_signal(signal.SIGTERM)
        assert [piece async for piece in stream][-1] == "length", "the answer is whole"
        assert await worker.ended() == 0


async def test_what_stands_before_a_worker_is_not_passed_by(
    own_worker_aside: Service, tmp_path: Path
) -> None:
    service, port = own_worker_aside, free_port()
    async with api(service) as client, forwarded(("127.0.0.1", port)) as front:
        how = ("--listen-port", str(port), "--public-url", f"http://127.0.0.1:{front}")
        async with joined(service, tmp_path / "w1", *how) as worker:
            await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=1)
            (gateway,) = service.parts("gateway")
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 3:  # workers are looked for every second
                await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=1)
                assert not talks_to(gateway, engine_of(worker.process)[1])


async def _refuses_strangers(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=30) as stranger:
        body = {"model": "chat", "messages": HELLO, "max_tokens": 1}
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = await stranger.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 401
        for path in ("/metrics", "/props", "/slots"):
            assert (await stranger.get(path)).status_code == 401


def _tells_no_key(service: Service, worker: JoinedWorker, engine: psutil.Process) -> None:
    key = engine.environ()["LLAMA_API_KEY"]
    assert len(key) >= 40
    for process in (worker.process, *worker.process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            assert key not in " ".join(process.cmdline())
    logs = [worker.log, *worker.home.rglob("*.log"), *(service.state_dir / "logs").glob("*.log")]
    for log in logs:
        assert key not in log.read_text(errors="replace"), log
