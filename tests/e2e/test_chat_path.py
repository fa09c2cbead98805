"""The chat path as its users meet it: `turnout up`, the unmodified `openai` client, a real llama.cpp."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from tests.conftest import wait_until
from tests.service import Service, running_service

pytestmark = pytest.mark.timeout(300)

MODELS = {
    "chat": {
        "engine": "llamacpp",
        "weights": "builtin:smollm2",
        "needs": {"memory_bytes": 400 * 2**20},
        "idle_s": 3.0,
        "concurrency": 8,
    }
}
HELLO: Any = [{"role": "user", "content": "Count from one to one hundred."}]


def api(service: Service) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=service.api_key, max_retries=0, timeout=120
    )


def engines(service: Service) -> list[psutil.Process]:
    """The engine processes, not the wardens that watch them."""
    found: list[psutil.Process] = []
    for process in psutil.Process(service.pid).children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "turnout.engines.servers.llamacpp" in words and "turnout.worker.subreaper" not in words:
            found.append(process)
    return found


async def test_a_cold_model_wakes_for_a_request_and_leaves_when_idle(tmp_path: Path) -> None:
    async with running_service(tmp_path, models=MODELS) as service, api(service) as client:
        assert [m.id async for m in client.models.list()] == ["chat"]
        for _ in range(2):
            assert not engines(service)
            answer = await client.chat.completions.create(
                model="chat", messages=HELLO, max_tokens=5, temperature=0
            )
            assert answer.choices[0].message.content
            assert answer.usage
            assert answer.usage.completion_tokens == 5
            assert len(engines(service)) == 1
            await wait_until(lambda: not engines(service), "the idle engine to leave", 60)


async def test_streams_arrive_piece_by_piece(tmp_path: Path) -> None:
    async with running_service(tmp_path, models=MODELS) as service, api(service) as client:
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
        assert chunks[-1].usage
        async with httpx.AsyncClient() as http:
            figures = (await http.get(f"{service.url}/metrics")).text
            plain = await client.chat.completions.create(
                model="chat", messages=HELLO, max_tokens=4, temperature=0, stream=True
            )
            assert all(c.choices and c.usage is None for c in [c async for c in plain])

            async def counted() -> bool:
                rows = (await http.get(f"{service.url}/v1/usage", headers=service.headers)).json()["data"]
                return [(r["requests"], r["completion_tokens"]) for r in rows] == [(2, 12)]

            await wait_until(counted, "both streams to be counted by the engine's figures")
        assert 'turnout_chat_requests_total{model="chat",outcome="200"} 1.0' in figures
        assert 'turnout_chat_tokens_total{model="chat",kind="completion"} 8.0' in figures
        with pytest.raises(openai.NotFoundError, match="There is no model nope"):
            await client.chat.completions.create(model="nope", messages=HELLO)
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="tk-no.no").chat.completions.create(
                model="chat", messages=HELLO
            )


async def test_many_requests_for_a_cold_model_start_it_once_and_all_are_answered(
    tmp_path: Path, figures: Any
) -> None:
    async with running_service(tmp_path, models=MODELS) as service, api(service) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def ask(number: int) -> str:
            answer = await client.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": f"Say {number}."}], max_tokens=1
            )
            return answer.choices[0].finish_reason

        assert await asyncio.gather(*(ask(n) for n in range(200))) == ["length"] * 200
        log = (service.state_dir / "logs" / "worker.log").read_text()
        assert log.count('"event": "engine started"') == 1
        figures(
            f"chat: 200 requests for a cold model: one start, all answered in {loop.time() - began:.1f} s"
        )


async def test_an_engine_killed_in_the_middle_ends_its_streams_with_an_error_and_is_replaced(
    tmp_path: Path,
) -> None:
    async with running_service(tmp_path, models=MODELS) as service, api(service) as client:
        await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=1)
        stream = await client.chat.completions.create(
            model="chat",
            messages=[{"role": "user", "content": "Tell a long story."}],
            max_tokens=400,
            stream=True,
        )
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            async for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    for engine in engines(service):
                        engine.kill()
        answer = await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=2)
        assert answer.choices[0].message.content is not None


async def test_a_killed_worker_comes_back_with_its_models(tmp_path: Path) -> None:
    async with running_service(tmp_path, models=MODELS) as service, api(service) as client:
        await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=1)
        old = engines(service)
        (worker,) = service.parts("worker")
        worker.kill()
        await wait_until(lambda: not any(e.is_running() for e in old), "the engines to die with the worker")
        answer = await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=2)
        assert answer.choices[0].message.content is not None


async def test_a_model_is_registered_used_and_removed_over_http(tmp_path: Path) -> None:
    async with (
        running_service(tmp_path, models=MODELS) as service,
        api(service) as client,
        httpx.AsyncClient(base_url=service.url, headers=service.headers, timeout=30) as http,
    ):
        body = {"alias": "second", "engine": "llamacpp", "model_name": "builtin:smollm2"}
        assert (await http.post("/v1/models/register", json=body)).status_code == 200
        answer = await client.chat.completions.create(model="second", messages=HELLO, max_tokens=2)
        assert answer.model == "second"
        (worker,) = (await http.get("/workers")).json()["data"]
        assert [r["phase"] for r in worker["replicas"]] == ["ready"]
        refused = await http.post("/v1/models/register", json={**body, "arguments": ["--log-file=/etc/x"]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "arguments")
        assert (await http.delete("/v1/models/second")).json()["deleted"]
        await wait_until(lambda: not engines(service), "the removed model's engine to leave", 60)
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="second", messages=HELLO)
