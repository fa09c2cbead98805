"""The connection to Redis: its client and its errors. The other modules here speak through it."""

import asyncio
from types import TracebackType
from typing import Any, cast

from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from turnout.errors import Unavailable
from turnout.store.key_names import KeyNames
from turnout.store.redis_client import PlainClient
from turnout.store.redis_pool import WaitingPool, WaitingSentinelPool
from turnout.store.server_url import read_sentinel_url
from turnout.store.store_settings import AcceptAfter
from turnout.telemetry.log import get_log

log = get_log()

_LIMIT_S = 10.0
_CONNECTIONS = 64  # a burst past this waits for one; redis-py's plain pool would fail it
_SAFE_MS = 5_000  # how long a promise may take to be on disk
_MAX_TOLD = 1_000
_SENTINEL_LIMIT_S = 1.0  # then the next one is asked


def _pool(url: str) -> Any:
    # No silent retries: a script whose reply was lost may have run. Callers know whether to ask again.
    # RESP2, because the shape of stream replies differs between the two protocols.
    options: dict[str, Any] = {
        "max_connections": _CONNECTIONS,
        "wait_s": _LIMIT_S,
        "socket_timeout": None,
        "socket_connect_timeout": 5,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    named = read_sentinel_url(url)
    if named is None:
        return cast("Any", WaitingPool).from_url(url, **options)
    asking = {
        "socket_timeout": _SENTINEL_LIMIT_S,
        "socket_connect_timeout": _SENTINEL_LIMIT_S,
        "password": named.sentinel_password,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    sentinel = cast("Any", Sentinel)(named.sentinels, sentinel_kwargs=asking)
    options |= {
        "socket_connect_timeout": 2,
        "db": named.db,
        "username": named.user,
        "password": named.password,
    }
    return cast("Any", WaitingSentinelPool)(named.service, sentinel, **options)


class translated:
    """Foreign errors become Unavailable: Redis is away, loading, refuses, or takes longer than `limit_s`. A class, because it
    is around every command, and a generator's context costs three times as much."""

    __slots__ = ("_limit",)

    def __init__(self, limit_s: float = _LIMIT_S) -> None:
        # Our own limit, not redis-py's socket_timeout: on Python 3.11 that one can swallow a cancellation.
        self._limit = asyncio.timeout(limit_s)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, err, trace)
        except TimeoutError as late:
            raise Unavailable(f"Redis did not answer: {late}", retry_after_s=1.0) from late
        if isinstance(err, ResponseError) and "WRONGTYPE" in str(err):
            log.error(
                "redis key has the wrong type",
                error=str(err),
                command="; ".join(getattr(err, "__notes__", ())),
            )
        if isinstance(err, RedisError | OSError | TimeoutError):
            raise Unavailable(f"Redis did not answer: {err}", retry_after_s=1.0) from err


def _cannot_tell(refusal: ResponseError) -> bool:
    said = str(refusal)
    return (
        isinstance(refusal, NoPermissionError)
        or "unknown command" in said
        or "appendonly is disabled" in said
    )


class RedisConnection:
    """`client` takes commands; `keys` has the names of all keys."""

    def __init__(self, url: str, prefix: str, accept_after: AcceptAfter = "write") -> None:
        self.keys = KeyNames(prefix)
        self.client: Any = PlainClient(_pool(url))
        self._accept_after: AcceptAfter = accept_after
        self._told: set[str] = set()

    def first_time(self, said: str) -> bool:
        """Whether this was not said before: what is true of many records is logged once. Bounded."""
        if said in self._told or len(self._told) >= _MAX_TOLD:
            return False
        self._told.add(said)
        return True

    async def promise(self, *command: Any) -> Any:
        """Runs a command whose effect is promised to someone; returns when it is as safe as `accept_after` asks.

        A server that cannot tell (no AOF, Redis before 7.2) is believed by its answer, unless a replica was asked for.
        """
        if self._accept_after == "write":
            return await self.client.execute_command(*command)
        replicas = int(self._accept_after == "replica")
        answer, safe = await self.client.execute_together(command, ("WAITAOF", 1, replicas, _SAFE_MS))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(safe, ResponseError) and not replicas and _cannot_tell(safe):
            log.warning("redis cannot tell what is on its disk", error=str(safe))
            self._accept_after = "write"
        elif isinstance(safe, Exception):
            raise safe
        elif safe[0] < 1 or safe[1] < replicas:
            where = "a replica's disk" if safe[0] else "its disk"
            raise Unavailable(f"Redis did not get this onto {where} in time; ask again.", retry_after_s=1.0)
        return answer

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
        pool = self.client.connection_pool
        await pool.disconnect()
        if isinstance(pool, SentinelConnectionPool):
            await cast("Any", pool).sentinel_manager.aclose()
