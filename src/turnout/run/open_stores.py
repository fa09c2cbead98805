"""Opens the stores that the configuration names."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from turnout.errors import Misconfigured
from turnout.run.config import Config
from turnout.run.state_dir import write_private
from turnout.store.connection import RedisConnection
from turnout.store.object_store import open_blobs
from turnout.store.server_url import with_passwords
from turnout.stores import Stores, stores_on
from turnout.tasks.signed_urls import UrlSigner
from turnout.tasks.webhook_secret_rules import secret_of
from turnout.tasks.webhook_secret_store import WebhookSecretStore
from turnout.telemetry.otlp import OtlpSpans
from turnout.tenants.audit_log import AuditLog
from turnout.tenants.key_store import KeyStore


def embedded_redis_dir(config: Config) -> Path:
    return config.state_dir / "redis"


def find_redis_url(config: Config) -> str:
    """The configured server, or the embedded one that `turnout up` runs on this state directory."""
    if config.redis.redis_url:
        return with_passwords(
            config.redis.redis_url, config.redis.redis_password, config.redis.redis_sentinel_password
        )
    from turnout.store.valkey import redis_url

    password = embedded_redis_dir(config) / "password"
    try:
        return redis_url(embedded_redis_dir(config), password.read_text())
    except FileNotFoundError as err:
        raise Misconfigured(
            f"no Redis: {config.state_dir} has no embedded one yet (turnout up makes it), and no --redis-url was given"
        ) from err


def new_stores(config: Config) -> Stores:
    """Connects to nothing yet."""
    link = RedisConnection(find_redis_url(config), config.redis.redis_prefix, config.redis.accept_after)
    blobs = open_blobs(
        config.objects.blobs or str(config.state_dir / "objects"), config.objects.blobs_endpoint
    )
    spans = OtlpSpans(config.telemetry.traces_endpoint) if config.telemetry.traces_endpoint else None
    return stores_on(link, blobs, config.tasks.retention_s, spans)


async def find_url_signer(config: Config, stores: Stores) -> UrlSigner:
    base = (config.gateway.public_url or "").rstrip("/")
    return UrlSigner(await stores.share_links.url_secret(), base, config.tasks.url_ttl_s)


async def find_webhook_secret(config: Config, store: WebhookSecretStore) -> str:
    """What webhooks of tenants without a secret of their own are signed with: configured, or made once for the service,
    wherever its manager runs. A copy lies in the state directory for those who verify."""
    if config.tasks.webhook_secret:
        return config.tasks.webhook_secret
    path = config.state_dir / "webhook-secret"
    here = path.read_text() if path.exists() else ""  # earlier versions kept it there alone
    secret = await store.of_service(here or secret_of(secrets.token_bytes(32)))
    if secret != here:
        write_private(path, secret)
    return secret


@asynccontextmanager
async def open_stores(config: Config) -> AsyncGenerator[Stores]:
    stores = new_stores(config)
    try:
        yield stores
    finally:
        await stores.close()


@asynccontextmanager
async def open_connection(config: Config) -> AsyncGenerator[RedisConnection]:
    link = RedisConnection(find_redis_url(config), config.redis.redis_prefix, config.redis.accept_after)
    try:
        yield link
    finally:
        await link.close()


@asynccontextmanager
async def open_key_store(config: Config) -> AsyncGenerator[tuple[KeyStore, AuditLog]]:
    """The keys, and the log that every change of them goes to first."""
    async with open_connection(config) as link:
        yield KeyStore(link), AuditLog(link)
