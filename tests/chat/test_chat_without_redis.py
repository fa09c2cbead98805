"""Chat goes on while Redis refuses writes or is stopped: within the limits, and all of it is paid afterwards."""

import asyncio
import json
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.conftest import Stores, wait_until
from tests.gateways import Chat, chatting
from tests.relay.kit import Call

from turnout.chat.quota_rules import held_ahead
from turnout.store.connection import RedisConnection
from turnout.store.object_store import open_blobs
from turnout.store.valkey import redis_url, start_valkey
from turnout.stores import stores_on
from turnout.tasks.task_rules import TenantId

ASK = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
PATH = "/v1/chat/completions"
TOKENS = 2  # that each answer costs


async def answer(call: Call) -> None:
    said = {"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": TOKENS - 1}}
    await call.json(json.dumps(said).encode())


@dataclass
class Server:
    """A Valkey of the test's own that can be made to fail."""

    stores: Stores
    pid: int

    @asynccontextmanager
    async def failing(self, how: str) -> AsyncIterator[None]:
        if how == "stopped":
            os.kill(self.pid, signal.SIGSTOP)
        else:
            await self.stores.link.client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            if how == "stopped":
                os.kill(self.pid, signal.SIGCONT)
            else:
                await self.stores.link.client.config_set("maxmemory", 0)

    async def left(self, tenant: str, field: str) -> float:
        """What the account holds by its last write."""
        account = self.stores.link.keys.chat_account(tenant)
        return float(await self.stores.link.client.hget(account, field) or "nan")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    child = await start_valkey(tmp_path / "r", "test", tmp_path / "log")
    link = RedisConnection(redis_url(tmp_path / "r", "test"), "turnout")
    yield Server(stores_on(link, open_blobs(str(tmp_path / "objects")), retention_s=3600), child.pid)
    await link.close()
    await child.stop(5)


async def ask(http: httpx.AsyncClient) -> tuple[int, float]:
    began = time.monotonic()
    status = (await http.post(PATH, json=ASK)).status_code
    return status, time.monotonic() - began


@pytest.mark.parametrize("how", ["out of memory", "stopped"])
async def test_chat_goes_on_and_the_accounts_match_afterwards(
    server: Server, tmp_path: Path, how: str, figures: Callable[[str], None]
) -> None:
    per_minute = 120
    async with (
        chatting(
            server.stores,
            tmp_path,
            limit_chat_requests_per_minute=6000,
            limit_chat_tokens_per_minute=per_minute,
            limit_chat_concurrency=8,
        ) as chat,
        chat.client() as http,
    ):
        await chat.replica(answer)
        began, asked, took = time.monotonic(), 1, list[float]()
        assert (await ask(http))[0] == 200
        async with server.failing(how):
            # Where reads wait, too, longer than a key is remembered.
            while time.monotonic() - began < (6.5 if how == "stopped" else 1.5):
                status, seconds = await ask(http)
                assert status == 200
                asked += 1
                took.append(seconds)
                await asyncio.sleep(0.25)
        figures(
            f"chat with Redis {how}: {len(took)} requests, p50 {statistics.median(took) * 1000:.0f} ms, "
            f"worst {max(took) * 1000:.0f} ms"
        )
        await wait_until(lambda: settled(chat, server, asked), "usage and accounts to be settled")
        passed_s = time.monotonic() - began
        held = await server.left("acme", "t") + chat.share.tokens
        spent = asked * TOKENS
        assert per_minute - spent - 1 <= held <= per_minute - spent + passed_s * per_minute / 60 + 1


async def settled(chat: Chat, server: Server, asked: int) -> bool:
    account = chat.gateway.inside.chat.shares._accounts[TenantId("acme")]
    rows = (await chat.gateway.http.get("/v1/usage")).json().get("data", [])
    counted = (
        sum(row["requests"] for row in rows),
        sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows),
    )
    lent = account.share._lent_tokens or account.share._lent_requests
    return counted == (asked, asked * TOKENS) and account.unanswered is None and not lent


async def test_a_tenant_gets_no_more_than_its_limit_from_one_gateway(server: Server, tmp_path: Path) -> None:
    per_minute = 30
    async with (
        chatting(server.stores, tmp_path, limit_chat_requests_per_minute=per_minute) as chat,
        chat.client() as http,
    ):
        await chat.replica(answer)
        began = time.monotonic()
        statuses = [(await ask(http))[0] for _ in range(5)]

        def most() -> float:
            return per_minute + (time.monotonic() - began) * per_minute / 60 + held_ahead(per_minute)

        async with server.failing("stopped"):
            statuses += [status for status, _ in await asyncio.gather(*(ask(http) for _ in range(100)))]
            assert set(statuses) == {200, 429}
            assert statuses.count(200) > per_minute / 2
            assert statuses.count(200) <= most()
        await wait_until(lambda: chat.gateway.inside.chat.shares._away_until is None, "accounts to answer")
        statuses += [(await ask(http))[0] for _ in range(20)]
        assert statuses.count(200) <= most(), "what was lent is paid"
