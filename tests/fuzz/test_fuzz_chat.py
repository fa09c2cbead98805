"""Odd bodies of chat requests, and odd answers of engines: what they cost is still counted."""

import json
import random
from pathlib import Path
from typing import Any

import httpx
from tests.conftest import Stores, wait_until
from tests.fuzz.runner import altered, cases, check_answer, damaged, watched
from tests.gateways import chatting
from tests.relay.kit import Call

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
SAYS: list[dict[str, str]] = [{"role": "user", "content": "x"}]
BODIES: list[dict[str, Any]] = [
    {"model": "m", "messages": SAYS, "max_tokens": 5, "n": 2},
    {"model": "m", "messages": SAYS, "stream": True, "stream_options": {"include_usage": True}},
    {"model": "m", "prompt": "x", "max_completion_tokens": 3},
    {"model": "m", "input": ["x", "y"]},
]
USAGE: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
SAID: dict[str, Any] = {"id": "c", "choices": [{"index": 0, "message": {"content": "y"}}], "usage": USAGE}


def written(value: dict[str, Any], chance: random.Random) -> bytes:
    raw = json.dumps(altered(value, chance)).encode()
    return damaged(raw, chance) if chance.random() < 0.4 else raw


async def ask(http: httpx.AsyncClient, chance: random.Random) -> None:
    body, path = written(chance.choice(BODIES), chance), chance.choice(PATHS)
    answer = await http.post(path, content=body, headers={"content-type": "application/json"})
    check_answer(answer, (path, body))


async def test_fuzz_chat(stores: Stores, tmp_path: Path) -> None:
    limits: dict[str, Any] = {"limit_chat_requests_per_minute": 10**9, "limit_chat_tokens_per_minute": 10**15}
    engine = random.Random()

    async def answer(call: Call) -> None:
        if b'"stream"' not in call.request.body:
            return await call.json(written(SAID, engine))
        await call.begin_events()
        for _ in range(engine.randint(0, 3)):
            await call.chunk(b"data: " + written(SAID, engine) + b"\n\n")
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()

    async with chatting(stores, tmp_path, **limits) as chat, chat.client() as http:
        replica = await chat.replica(answer)
        with watched():
            for chance in cases():
                engine.seed(chance.random())
                await ask(http, chance)
                replica.requests.clear()  # or memory would grow by what the test keeps
            await wait_until(lambda: chat.at_rest, "nothing is held")
            await chat.gateway.inside.chat.usage.flush()
        assert (await chat.gateway.http.get("/v1/usage")).status_code == 200
        assert not any(chat.gateway.inside.background.restarts().values()), "no loop died"
