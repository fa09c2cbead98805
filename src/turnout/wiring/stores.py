"""The adapters on Redis and the object store that roles share."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from turnout.adapters.object_store import ObjectBlobs, open_blobs
from turnout.adapters.otlp import OtlpSpans
from turnout.adapters.redis.audit_log import RedisAuditLog
from turnout.adapters.redis.backlog import RedisBacklog
from turnout.adapters.redis.budget_store import RedisBudgets
from turnout.adapters.redis.connection import RedisConnection
from turnout.adapters.redis.data_health import RedisDataHealth
from turnout.adapters.redis.dead_records import RedisDeadRecords
from turnout.adapters.redis.fleet_state import RedisFleetStatus, RedisManagerState
from turnout.adapters.redis.gang_reports import RedisGangReports
from turnout.adapters.redis.history_store import RedisHistoryStore
from turnout.adapters.redis.key_store import RedisKeyStore
from turnout.adapters.redis.model_store import RedisModelStore
from turnout.adapters.redis.quota_accounts import RedisQuotas
from turnout.adapters.redis.redis_mutex import RedisMutex
from turnout.adapters.redis.route_table import RedisDemandReports, RedisRouteTable
from turnout.adapters.redis.server_url import with_passwords
from turnout.adapters.redis.session_store import RedisSessionStore
from turnout.adapters.redis.share_store import RedisShareStore
from turnout.adapters.redis.task_events import RedisTaskEvents
from turnout.adapters.redis.task_log import RedisTaskLog
from turnout.adapters.redis.task_queue import RedisQueue
from turnout.adapters.redis.task_traces import TaskTraces
from turnout.adapters.redis.usage_log import RedisUsage
from turnout.adapters.redis.webhook_outbox import RedisOutbox
from turnout.adapters.redis.webhook_secret_store import RedisWebhookSecrets
from turnout.adapters.redis.worker_store import RedisOrderStore, RedisWorkerStore
from turnout.config import Config
from turnout.domain.errors import Misconfigured
from turnout.domain.signed_urls import UrlSigner


@dataclass(frozen=True, slots=True)
class Stores:
    """One adapter for each port, all on one connection; whoever makes them closes them in the end. `spans` is None unless
    traces are on."""

    link: RedisConnection
    blobs: ObjectBlobs
    tasks: RedisTaskLog
    events: RedisTaskEvents
    queue: RedisQueue
    backlog: RedisBacklog
    gangs: RedisGangReports
    keys: RedisKeyStore
    sessions: RedisSessionStore
    dead_records: RedisDeadRecords
    history: RedisHistoryStore
    audit: RedisAuditLog
    shares: RedisShareStore
    quotas: RedisQuotas
    usage: RedisUsage
    budgets: RedisBudgets
    outbox: RedisOutbox
    webhook_secrets: RedisWebhookSecrets
    mutex: RedisMutex
    models: RedisModelStore
    workers: RedisWorkerStore
    orders: RedisOrderStore
    routes: RedisRouteTable
    demand: RedisDemandReports
    manager_state: RedisManagerState
    fleet_status: RedisFleetStatus
    data: RedisDataHealth
    spans: OtlpSpans | None = None

    async def close(self) -> None:
        await self.link.close()
        if self.spans is not None:
            await asyncio.to_thread(self.spans.close)


def embedded_redis_dir(config: Config) -> Path:
    return config.state_dir / "redis"


def find_redis_url(config: Config) -> str:
    """The configured server, or the embedded one that `turnout up` runs on this state directory."""
    if config.redis_url:
        return with_passwords(config.redis_url, config.redis_password, config.redis_sentinel_password)
    from turnout.adapters.valkey import redis_url

    password = embedded_redis_dir(config) / "password"
    try:
        return redis_url(embedded_redis_dir(config), password.read_text())
    except FileNotFoundError as err:
        raise Misconfigured(
            f"no Redis: {config.state_dir} has no embedded one yet (turnout up makes it), and no --redis-url was given"
        ) from err


def new_stores(config: Config) -> Stores:
    """Connects to nothing yet."""
    link = RedisConnection(find_redis_url(config), config.redis_prefix, config.accept_after)
    blobs = open_blobs(config.blobs or str(config.state_dir / "objects"), config.blobs_endpoint)
    spans = OtlpSpans(config.traces_endpoint) if config.traces_endpoint else None
    return stores_on(link, blobs, config.retention_s, spans)


def stores_on(
    link: RedisConnection, blobs: ObjectBlobs, retention_s: float, spans: OtlpSpans | None = None
) -> Stores:
    events = RedisTaskEvents(link)
    tasks = RedisTaskLog(link, retention_s, TaskTraces(events, spans) if spans is not None else None)
    return Stores(
        link=link,
        blobs=blobs,
        tasks=tasks,
        events=events,
        queue=RedisQueue(link, tasks),
        backlog=RedisBacklog(link),
        gangs=RedisGangReports(link),
        keys=RedisKeyStore(link),
        sessions=RedisSessionStore(link),
        dead_records=RedisDeadRecords(link),
        history=RedisHistoryStore(link),
        audit=RedisAuditLog(link),
        shares=RedisShareStore(link),
        quotas=RedisQuotas(link),
        usage=RedisUsage(link),
        budgets=RedisBudgets(link),
        outbox=RedisOutbox(link, tasks),
        webhook_secrets=RedisWebhookSecrets(link),
        mutex=RedisMutex(link),
        models=RedisModelStore(link),
        workers=RedisWorkerStore(link),
        orders=RedisOrderStore(link),
        routes=RedisRouteTable(link),
        demand=RedisDemandReports(link),
        manager_state=RedisManagerState(link),
        fleet_status=RedisFleetStatus(link),
        data=RedisDataHealth(link),
        spans=spans,
    )


async def find_url_signer(config: Config, stores: Stores) -> UrlSigner:
    base = (config.public_url or "").rstrip("/")
    return UrlSigner(await stores.shares.url_secret(), base, config.url_ttl_s)


@asynccontextmanager
async def open_stores(config: Config) -> AsyncGenerator[Stores]:
    stores = new_stores(config)
    try:
        yield stores
    finally:
        await stores.close()


@asynccontextmanager
async def open_connection(config: Config) -> AsyncGenerator[RedisConnection]:
    link = RedisConnection(find_redis_url(config), config.redis_prefix, config.accept_after)
    try:
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def open_key_store(config: Config) -> AsyncGenerator[tuple[RedisKeyStore, RedisAuditLog]]:
    """The keys, and the log that every change of them goes to first."""
    async with open_connection(config) as link:
        yield RedisKeyStore(link), RedisAuditLog(link)
