"""The unmodified OpenAI client behind the relay."""

import asyncio
import json
from typing import Any

import openai
import pytest
from tests.relay.kit import Call, Stand

from turnout.errors import Unavailable
from turnout.relay import RelayRequest, UpstreamCall


def openai_client(stand: Stand) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{stand.port}/v1", api_key="tk-1", max_retries=0)


async def complete(call: Call) -> None:
    asked = json.loads(call.request.body)
    common = {"id": "c", "created": 1, "model": asked["model"]}
    if asked.get("stream"):
        await call.begin_events()
        for word in ("Hello", " there"):
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            said = {**common, "object": "chat.completion.chunk", "choices": [choice]}
            await call.chunk(b"data: %b\n\n" % json.dumps(said).encode())
        if asked["model"] == "fragile":
            return call.writer.close()
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()
    else:
        message = {"role": "assistant", "content": "Hello there"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        await call.json(json.dumps({**common, "object": "chat.completion", "choices": [choice]}).encode())


async def test_the_openai_client_chats_through_it(stand: Stand) -> None:
    await stand.replica(complete)
    async with openai_client(stand) as client:
        messages: Any = [{"role": "user", "content": "Hi"}]
        for _ in range(2):
            whole = await client.chat.completions.create(model="m", messages=messages)
            assert whole.choices[0].message.content == "Hello there"
            words = ""
            async for chunk in await client.chat.completions.create(
                model="m", messages=messages, stream=True
            ):
                words += chunk.choices[0].delta.content or ""
            assert words == "Hello there"
    assert stand.admission.asks[0].authorization == b"Bearer tk-1"
    assert stand.admission.settled


async def test_the_openai_client_raises_on_a_broken_stream(make_stand) -> None:
    stand: Stand = await make_stand(comment_after_s=0.02, comment_every_s=0.02)
    await stand.replica(complete)
    async with openai_client(stand) as client:
        words = ""
        with pytest.raises(openai.APIError, match="broke off"):
            async for chunk in await client.chat.completions.create(
                model="fragile", messages=[{"role": "user", "content": "Hi"}], stream=True
            ):
                words += chunk.choices[0].delta.content or ""
        assert words == "Hello there"

        async def fail(ask: RelayRequest) -> UpstreamCall:
            await asyncio.sleep(0.1)
            raise Unavailable("It did not wake.", code="model_failed")

        stand.admission.admit_with = fail
        with pytest.raises(openai.APIError, match="It did not wake"):
            async for _ in await client.chat.completions.create(model="m", messages=[], stream=True):
                pass
