"""Connections to Redis are bounded; whoever finds none waits in order, and nothing that fails keeps one."""

import asyncio
from typing import Any

import pytest
from tests.conftest import wait_until

from turnout.errors import Unavailable
from turnout.store.connection import translated
from turnout.store.redis_client import PlainClient
from turnout.store.redis_pool import WaitingPool


def _client(valkey: str, connections: int, wait_s: float = 5.0) -> Any:
    pool: Any = WaitingPool.from_url(valkey, max_connections=connections, wait_s=wait_s, protocol=2)
    return PlainClient(pool)


async def test_a_burst_shares_a_connection_in_order(valkey: str) -> None:
    client = _client(valkey, 1)
    try:
        numbers = await asyncio.gather(*(client.incr("pool:burst") for _ in range(50)))
        assert numbers == sorted(numbers)
        assert len(client.connection_pool._available_connections) == 1
    finally:
        await client.delete("pool:burst")
        await client.connection_pool.disconnect()


async def test_who_waits_too_long_is_told_that_redis_is_unavailable(valkey: str) -> None:
    client = _client(valkey, 1, wait_s=0.05)
    try:
        blocking = asyncio.ensure_future(
            client.execute_command("XREAD", "BLOCK", 0, "STREAMS", "pool:none", "$")
        )
        await wait_until(lambda: client.connection_pool._slots.locked(), "the only connection to be taken")
        with pytest.raises(Unavailable):
            async with translated():
                await client.ping()
        blocking.cancel()
        await asyncio.wait([blocking])
        assert await client.ping(), "a cancelled command gives its connection back, and it works"
    finally:
        await client.connection_pool.disconnect()


async def test_commands_together_have_their_answers_in_order_and_errors_among_them(valkey: str) -> None:
    client = _client(valkey, 1)
    try:
        answers = await client.execute_together(
            ("SET", "pool:text", "x"), ("LPUSH", "pool:text", 1), ("CONFIG GET", "port"), ("GET", "pool:text")
        )
        assert (answers[0], answers[3]) == (True, b"x")
        assert "WRONGTYPE" in str(answers[1])
        assert not isinstance(answers[2], Exception)
        with pytest.raises(Unavailable):
            async with translated():
                await client.execute_command("LPUSH", "pool:text", 1)
        assert await client.get("pool:text") == b"x", "an error leaves the connection as it was"
    finally:
        await client.delete("pool:text")
        await client.connection_pool.disconnect()
