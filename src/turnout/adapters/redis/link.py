"""The connection to Redis: its client, its scripts and its errors. The other modules here speak through it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from turnout.domain.errors import Unavailable

MAX_EVENTS = 100_000  # of the stream that gateways tail; a task's own story is kept apart


@asynccontextmanager
async def translated() -> AsyncGenerator[None]:
    """Foreign errors become Unavailable: Redis is away, loading, or refuses."""
    try:
        yield
    except (RedisError, OSError, TimeoutError) as err:
        raise Unavailable(f"Redis did not answer: {err}", retry_after_s=1.0) from err


class Link:
    """`run` calls a script by name; `client` takes plain commands; `patient` is for reads that block."""

    def __init__(self, url: str, prefix: str) -> None:
        # No silent retries: a script whose reply was lost may have run. Callers know whether to ask again.
        # RESP2, because the shape of stream replies differs between the two protocols.
        options = {"retry": Retry(NoBackoff(), 0), "socket_connect_timeout": 5, "protocol": 2}
        self.prefix = prefix
        self.client = cast("Any", Redis).from_url(url, socket_timeout=10, health_check_interval=15, **options)
        self.patient = cast("Any", Redis).from_url(url, socket_timeout=30, **options)
        here = files("turnout.adapters.redis")
        names = here.joinpath("names.lua").read_text()
        self._scripts = {
            name: self.client.register_script(names + here.joinpath(f"{name}.lua").read_text())
            for name in ("submit", "commit", "claim", "renew", "overdue", "forget", "mutex")
        }

    def key(self, *parts: str) -> str:
        return ":".join((self.prefix, *parts))

    async def run(self, script: str, *args: str | bytes | float) -> Any:
        async with translated():
            return await self._scripts[script](keys=[self.prefix], args=args)

    async def ping(self) -> None:
        async with translated():
            await self.client.ping()

    async def close(self) -> None:
        await self.client.aclose()
        await self.patient.aclose()
