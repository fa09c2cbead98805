"""The adapters on Redis and the object store that roles share."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from turnout.adapters.object_store import ObjectBlobs, open_blobs
from turnout.adapters.redis.connection import RedisConnection
from turnout.adapters.redis.gang_board import RedisGangBoard
from turnout.adapters.redis.quota_accounts import RedisQuotas
from turnout.adapters.redis.registry import RedisRegistry
from turnout.adapters.redis.stores import RedisKeyStore, RedisMutex, RedisOutbox
from turnout.adapters.redis.task_log import RedisTaskLog
from turnout.adapters.redis.task_queue import RedisQueue
from turnout.adapters.redis.usage_log import RedisUsage
from turnout.config import Config
from turnout.domain.errors import Misconfigured


@dataclass(frozen=True, slots=True)
class Stores:
    """The adapters that roles share."""

    tasks: RedisTaskLog
    queue: RedisQueue
    keys: RedisKeyStore
    outbox: RedisOutbox
    mutex: RedisMutex
    blobs: ObjectBlobs
    registry: RedisRegistry
    quotas: RedisQuotas
    usage: RedisUsage
    gangs: RedisGangBoard
    link: RedisConnection


def embedded_redis_dir(config: Config) -> Path:
    return config.state_dir / "redis"


def find_redis_url(config: Config) -> str:
    """The configured server, or the embedded one that `turnout up` runs on this state directory."""
    if config.redis_url:
        return config.redis_url
    from turnout.adapters.valkey import redis_url

    password = embedded_redis_dir(config) / "password"
    try:
        return redis_url(embedded_redis_dir(config), password.read_text())
    except FileNotFoundError as err:
        raise Misconfigured(
            f"no Redis: {config.state_dir} has no embedded one yet (turnout up makes it), and no --redis-url was given"
        ) from err


def new_stores(config: Config) -> Stores:
    """Connects to nothing yet; whoever calls it closes `link` in the end."""
    link = RedisConnection(find_redis_url(config), config.redis_prefix)
    tasks = RedisTaskLog(link, config.retention_s)
    return Stores(
        tasks,
        RedisQueue(link, tasks),
        RedisKeyStore(link),
        RedisOutbox(link, tasks),
        RedisMutex(link),
        open_blobs(config.blobs or str(config.state_dir / "objects"), config.blobs_endpoint),
        RedisRegistry(link),
        RedisQuotas(link),
        RedisUsage(link),
        RedisGangBoard(link),
        link,
    )


@asynccontextmanager
async def open_stores(config: Config) -> AsyncGenerator[Stores]:
    stores = new_stores(config)
    try:
        yield stores
    finally:
        await stores.link.close()


@asynccontextmanager
async def open_key_store(config: Config) -> AsyncGenerator[RedisKeyStore]:
    link = RedisConnection(find_redis_url(config), config.redis_prefix)
    try:
        yield RedisKeyStore(link)
    finally:
        await link.close()
