"""The chat path as its users meet it: `turnout up`, the unmodified `openai` client, a real llama.cpp."""

import asyncio
import contextlib
from typing import Any

import httpx
import openai
import psutil
import pytest
from tests.conftest import wait_until
from tests.pace import patient
from tests.service import Service

pytestmark = pytest.mark.timeout(300)

HELLO: Any = [{"role": "user", "content": "Count from one to one hundred."}]
# An answer that is still given when something happens to it: a tiny model may say a word and end.
ENDLESS: Any = {"max_tokens": 2000, "extra_body": {"ignore_eos": True}}


def api(service: Service, key: str | None = None) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=key or service.api_key, max_retries=0, timeout=patient(120)
    )


async def is_cold(service: Service) -> None:
    await wait_until(lambda: not service.engines(), "the idle engine to leave", 60)


async def test_a_cold_model_wakes_for_a_request_and_leaves_when_idle(chatting: Service) -> None:
    async with api(chatting) as client:
        assert "chat" in [m.id async for m in client.models.list()]
        for _ in range(2):
            await is_cold(chatting)
            answer = await client.chat.completions.create(
                model="chat", messages=HELLO, max_tokens=5, temperature=0
            )
            assert answer.choices[0].message.content
            assert answer.usage
            assert answer.usage.completion_tokens == 5
            assert len(chatting.engines()) == 1
        await is_cold(chatting)


async def counted(service: Service, line: str) -> float:
    async with service.client() as http:
        figures = (await http.get("/metrics")).text
    return sum(float(one.split()[-1]) for one in figures.splitlines() if one.startswith(line))


async def test_an_engines_own_queue_is_told_while_the_engine_is_there(chatting: Service) -> None:
    async def told() -> set[str]:
        async with chatting.client() as http:
            lines = (await http.get("/metrics")).text.splitlines()
        return {line.partition("{")[0] for line in lines if line.startswith("turnout_engine_")}

    async with api(chatting) as client:

        async def told_after_a_chat() -> bool:
            await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=1)
            return bool(await told())

        await wait_until(told_after_a_chat, "the engine's figures to be told", 60)
        # llama.cpp says nothing of how full its KV cache is: what an engine does not tell is absent.
        of_prefixes = ("prefix_cache_tokens_total", "prefix_cache_hit_tokens_total")
        assert await told() == {f"turnout_engine_{name}" for name in ("running", "waiting", *of_prefixes)}
    await is_cold(chatting)

    async def untold() -> bool:
        return not await told()

    await wait_until(untold, "the figures to leave with the engine")


async def test_streams_arrive_piece_by_piece(chatting: Service) -> None:
    key = chatting.key_of()
    asked, made = (
        'turnout_chat_requests_total{model="chat",outcome="200"}',
        'turnout_chat_tokens_total{model="chat",kind="completion"}',
    )
    before = [await counted(chatting, line) for line in (asked, made)]
    async with api(chatting, key) as client:
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

        async def is_counted() -> bool:  # the stream ends for the gateway a moment after its last event
            after = [await counted(chatting, line) for line in (asked, made)]
            return [now - then for now, then in zip(after, before, strict=True)] == [1, 8]

        await wait_until(is_counted, "the stream to be counted")
        plain = await client.chat.completions.create(
            model="chat", messages=HELLO, max_tokens=4, temperature=0, stream=True
        )
        assert all(c.choices and c.usage is None for c in [c async for c in plain])

        async def is_booked() -> bool:
            async with chatting.client(key) as http:
                rows = (await http.get("/v1/usage")).json()["data"]
            return [(r["requests"], r["completion_tokens"]) for r in rows] == [(2, 12)]

        await wait_until(is_booked, "both streams to be counted by the engine's figures")
        with pytest.raises(openai.NotFoundError, match="There is no model nope"):
            await client.chat.completions.create(model="nope", messages=HELLO)
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="tk-no.no").chat.completions.create(
                model="chat", messages=HELLO
            )


async def test_many_requests_for_a_cold_model_start_it_once_and_all_are_answered(
    chatting: Service, figures: Any
) -> None:
    def starts() -> int:
        log = (chatting.state_dir / "logs" / "worker.log").read_text()
        return log.count('"event": "engine started"')

    await is_cold(chatting)
    before = starts()
    async with api(chatting) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def ask(number: int) -> str:
            answer = await client.chat.completions.create(
                model="chat",
                messages=[{"role": "user", "content": f"Say {number}."}],
                max_tokens=1,
                extra_body={"ignore_eos": True},
            )
            return answer.choices[0].finish_reason

        assert await asyncio.gather(*(ask(n) for n in range(200))) == ["length"] * 200
        assert starts() - before == 1
        figures(
            f"chat: 200 requests for a cold model: one start, all answered in {loop.time() - began:.1f} s"
        )


async def test_an_engine_killed_in_the_middle_ends_its_streams_with_an_error_and_is_replaced(
    chatting: Service,
) -> None:
    async with api(chatting) as client:
        stream = await client.chat.completions.create(
            model="chat",
            messages=[{"role": "user", "content": "Tell a long story."}],
            stream=True,
            **ENDLESS,
        )
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            async for chunk in stream:
                if chunk.choices and chunk.choices[0].delta.content:
                    for engine in chatting.engines():
                        with contextlib.suppress(psutil.NoSuchProcess):
                            engine.kill()
        answer = await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=2)
        assert answer.choices[0].message.content is not None


async def test_a_killed_worker_comes_back_with_its_models(chatting: Service) -> None:
    async with api(chatting) as client:
        await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=1)
        old = chatting.engines()
        (worker,) = chatting.parts("worker")
        worker.kill()
        await wait_until(lambda: not any(e.is_running() for e in old), "the engines to die with the worker")
        answer = await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=2)
        assert answer.choices[0].message.content is not None


async def test_a_worker_that_hangs_with_its_engine_is_replaced_and_the_request_is_served(
    chatting: Service,
) -> None:
    """Both take connections and answer none: without a bound on that the client would wait for a quarter of an hour."""
    async with api(chatting) as client:
        await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=1)
        (worker,) = chatting.parts("worker")
        for hung in (*chatting.engines(), worker):
            hung.suspend()
        answer = await client.chat.completions.create(model="chat", messages=HELLO, max_tokens=2)
        assert answer.choices[0].message.content is not None
        assert not worker.is_running()


async def test_a_model_is_registered_used_and_removed_over_http(service: Service) -> None:
    async with api(service) as client, service.client() as http:
        body = {"alias": "second", "engine": "llamacpp", "model_name": "builtin:smollm2"}
        assert (await http.post("/v1/models/register", json=body)).status_code == 200
        answer = await client.chat.completions.create(model="second", messages=HELLO, max_tokens=2)
        assert answer.model == "second"

        async def is_ready() -> bool:
            return (await http.get("/v1/models/second")).json()["state"] == "ready"

        await wait_until(is_ready, "the manager to say that it is ready")
        refused = await http.post("/v1/models/register", json={**body, "arguments": ["--log-file=/etc/x"]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "arguments")
        assert (await http.delete("/v1/models/second")).json()["deleted"]

        async def has_left() -> bool:
            workers = (await http.get("/workers")).json()["data"]
            return not any(r["model"] == "second" for w in workers for r in w["replicas"])

        await wait_until(has_left, "the removed model's engine to leave", 60)
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="second", messages=HELLO)
