"""What a tenant may ask of chat models, over real sockets: refused before any work, and nothing held afterwards."""

import asyncio
import json
import time
from math import ceil
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.conftest import Stores, wait_until
from tests.gateways import chatting
from tests.relay.kit import Call

from turnout.chat import chat_limits
from turnout.chat.quota_rules import held_ahead

ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def patient_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no reason to lend."""
    monkeypatch.setattr(chat_limits, "_ASK_S", 30.0)


def answer(prompt: int = 10, completion: int = 5) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    said = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json.dumps(said | {"usage": usage}).encode()


async def at_once(call: Call) -> None:
    await call.json(answer())


async def test_requests_past_the_minute_are_refused_in_openais_shape(stores: Stores, tmp_path: Path) -> None:
    async with (
        chatting(stores, tmp_path, limit_chat_requests_per_minute=3) as chat,
        chat.client() as http,
        openai.AsyncOpenAI(base_url=f"{chat.base}/v1", api_key=chat.gateway.token, max_retries=0) as client,
    ):
        replica = await chat.replica(at_once)
        answers = [await http.post(PATH, json=ASK) for _ in range(3)]
        assert [a.status_code for a in answers] == [200] * 3
        assert answers[0].headers["x-ratelimit-limit-requests"] == "3"
        assert int(answers[0].headers["x-ratelimit-remaining-requests"]) <= 3
        refused = await http.post(PATH, json=ASK)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        assert refused.headers["x-ratelimit-limit-requests"] == "3"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert float(refused.headers["x-ratelimit-reset-requests"].removesuffix("s")) > 0
        assert refused.json()["error"] == {
            "message": "Over 3 requests a minute.",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(**ASK)  # type: ignore[arg-type]
        assert len(replica.requests) == 3
        other = {"authorization": f"Bearer {await chat.gateway.key('other')}"}
        assert (await http.post(PATH, json=ASK, headers=other)).status_code == 200
        assert chat.at_rest


async def test_a_full_line_is_refused_with_the_limits_too(stores: Stores, tmp_path: Path) -> None:
    async with (
        chatting(stores, tmp_path, limit_chat_requests_per_minute=600) as chat,
        chat.client() as http,
        asyncio.TaskGroup() as group,
    ):
        chat.gateway.inside.chat.switchboard._max_waiting = 1
        waits = group.create_task(http.post(PATH, json=ASK))
        demand = chat.gateway.inside.chat.switchboard.demand
        await wait_until(lambda: "m" in demand() and demand()["m"].waiting == 1, "one to wait")
        refused = await http.post(PATH, json=ASK)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_waiting")
        assert refused.headers["x-ratelimit-limit-requests"] == "600"
        waits.cancel()


async def test_two_gateways_share_one_limit(stores: Stores, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    limits: dict[str, Any] = {"limit_chat_requests_per_minute": 40}
    async with (
        chatting(stores, tmp_path / "a", **limits) as one,
        chatting(stores, tmp_path / "b", **limits) as two,
        one.client() as first,
        two.client() as second,
    ):
        for chat in (one, two):
            await chat.replica(at_once)
        began = time.monotonic()
        tries = [(first, second)[n % 2].post(PATH, json=ASK) for n in range(100)]
        codes = [a.status_code for a in await asyncio.gather(*tries)]
        assert set(codes) == {200, 429}
        # The account drips on while the test runs, and what a gateway holds for later is its share.
        dripped = ceil((time.monotonic() - began) * 40 / 60)
        assert 40 - 2 * held_ahead(40) <= codes.count(200) <= 40 + dripped


async def test_tokens_are_counted_by_the_engines_figures(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path, limit_chat_tokens_per_minute=1000) as chat, chat.client() as http:

        async def long_winded(call: Call) -> None:
            await call.json(answer(1500, 500))

        await chat.replica(long_winded)
        assert (await http.post(PATH, json=ASK)).status_code == 200
        refused = await http.post(PATH, json=ASK)
        assert refused.status_code == 429
        assert "1000 tokens a minute" in refused.json()["error"]["message"]
        assert 30 <= int(refused.headers["retry-after"]) <= 61


async def test_requests_at_once_are_limited_and_come_back_however_they_end(
    stores: Stores, tmp_path: Path
) -> None:
    async with chatting(stores, tmp_path, limit_chat_concurrency=2) as chat, chat.client() as http:
        go_on = asyncio.Event()

        async def held(call: Call) -> None:
            await go_on.wait()
            await call.json(answer())

        await chat.replica(held)
        pair = [asyncio.create_task(http.post(PATH, json=ASK)) for _ in range(2)]
        await wait_until(lambda: len(chat.replicas[0].requests) == 2, "both to be under way")
        refused = await http.post(PATH, json=ASK)
        assert (refused.status_code, refused.json()["error"]["message"]) == (
            429,
            "Over 2 requests at once.",
        )
        pair[0].cancel()  # hangs up
        await wait_until(lambda: chat.share.running == 1, "the permit to come back")
        go_on.set()
        assert (await pair[1]).status_code == 200
        assert (await http.post(PATH, json=ASK)).status_code == 200
        assert chat.at_rest


async def test_no_slot_leaks_on_errors_dead_replicas_or_hang_ups_at_any_moment(
    stores: Stores, tmp_path: Path
) -> None:
    async with (
        chatting(stores, tmp_path, limit_chat_concurrency=50) as chat,
        chat.client(limits=httpx.Limits(max_connections=200)) as http,
    ):

        async def capricious(call: Call) -> None:
            number = len(call.request.body) % 4
            if number == 0:
                call.die()
            elif number == 1:
                await call.json(b'{"error": "busy"}', b"503 Busy")
            elif number == 2:
                await asyncio.sleep(0.02)
                await call.json(answer())
            else:
                await call.json(answer())

        for _ in range(2):
            await chat.replica(capricious)

        async def ask(number: int) -> None:
            body = {**ASK, "user": "x" * number} if number % 9 else {"model": "nope"}
            content = b"{" if number % 10 == 0 else json.dumps(body).encode()
            with_limit = http.post(PATH, content=content)
            try:
                await asyncio.wait_for(with_limit, 0.002 * (number % 12) + 0.0001)
            except (TimeoutError, httpx.HTTPError):
                return

        for start in range(0, 120, 40):
            await asyncio.gather(*(ask(n) for n in range(start, start + 40)))
        await wait_until(lambda: chat.at_rest, "everything to be given back")


async def test_a_waiting_request_holds_its_slot_and_gives_it_back(stores: Stores, tmp_path: Path) -> None:
    async with chatting(stores, tmp_path, limit_chat_concurrency=1) as chat, chat.client() as http:
        waiting = asyncio.create_task(http.post(PATH, json=ASK))  # no replica is there

        def in_line() -> bool:
            demand = chat.gateway.inside.chat.switchboard.demand()
            return "m" in demand and demand["m"].waiting == 1

        await wait_until(in_line, "the request to wait")
        assert (await http.post(PATH, json=ASK)).status_code == 429
        waiting.cancel()
        await wait_until(lambda: chat.at_rest, "the permit to come back")


async def test_nothing_is_asked_of_redis_for_a_request_that_fits_the_held_ahead(
    stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        chatting(stores, tmp_path, limit_chat_requests_per_minute=100_000) as chat,
        chat.client() as http,
    ):
        await chat.replica(at_once)
        assert (await http.post(PATH, json=ASK)).status_code == 200
        asked = 0
        lease = chat.gateway.inside.stores.tenants.quotas.lease

        async def counted(*arguments: Any) -> Any:
            nonlocal asked
            asked += 1
            return await lease(*arguments)

        monkeypatch.setattr(chat.gateway.inside.stores.tenants.quotas, "lease", counted)
        began = time.monotonic()
        for _ in range(200):
            assert (await http.post(PATH, json=ASK)).status_code == 200
        assert asked < 20 + (time.monotonic() - began) / chat_limits._REFILL_S, (
            "beside what is asked at all times"
        )
