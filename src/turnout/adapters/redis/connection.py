"""The connection to Redis: its client and its errors. The other modules here speak through it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from turnout.adapters.redis.key_names import KeyNames
from turnout.domain.errors import Unavailable

_LIMIT_S = 10.0
_CONNECTIONS = 64  # a burst past this waits for one; redis-py's plain pool would fail it


@asynccontextmanager
async def translated(limit_s: float = _LIMIT_S) -> AsyncGenerator[None]:
    """Foreign errors become Unavailable: Redis is away, loading, refuses, or takes longer than `limit_s`."""
    try:
        # Our own limit, not redis-py's socket_timeout: on Python 3.11 that one can swallow a cancellation.
        async with asyncio.timeout(limit_s):
            yield
    except (RedisError, OSError, TimeoutError) as err:
        raise Unavailable(f"Redis did not answer: {err}", retry_after_s=1.0) from err


class RedisConnection:
    """`client` takes commands; `keys` has the names of all keys."""

    def __init__(self, url: str, prefix: str) -> None:
        self.keys = KeyNames(prefix)
        # No silent retries: a script whose reply was lost may have run. Callers know whether to ask again.
        # RESP2, because the shape of stream replies differs between the two protocols.
        pool = cast("Any", BlockingConnectionPool).from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=_LIMIT_S,
            socket_timeout=None,
            socket_connect_timeout=5,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
        self.client = cast("Any", Redis)(connection_pool=pool)

    async def ping(self) -> None:
        async with translated():
            await self.client.ping()

    async def now(self) -> float:
        """Unix time by the server's clock. Ages are judged by it alone: other clocks may be wrong, or be set anew."""
        async with translated():
            seconds, micros = await self.client.time()
        return seconds + micros / 1e6

    async def close(self) -> None:
        await self.client.aclose()
        await self.client.connection_pool.disconnect()
