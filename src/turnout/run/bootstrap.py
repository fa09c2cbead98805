"""Makes what a new installation on Kubernetes needs to know: passwords, the first admin key, the workers' key."""

import asyncio
import secrets
import time
from contextlib import aclosing

from turnout.errors import Misconfigured, Unavailable
from turnout.fleet.hosts.kubernetes.cluster_secret import ClusterSecret
from turnout.run.config import Config
from turnout.run.open_stores import open_key_store
from turnout.tasks.webhook_secret_rules import secret_of
from turnout.telemetry.log import get_log
from turnout.tenants.audit_rules import AuditAction, AuditEntry
from turnout.tenants.key_rules import (
    Key,
    Role,
    bootstrap_id,
    mint,
    missing_keys,
    split_token,
    tenant_of_new,
)

_RETRY_S = 2.0
_KEYS = {"admin-key": Role.ADMIN, "worker-key": Role.WORKER}


async def bootstrap(config: Config, secret: ClusterSecret, deadline_s: float, *, own_redis: bool) -> None:
    """Makes Secret and Redis match: adds to the Secret what is missing there, and to Redis those of its keys that never were
    there (`missing_keys`). So an installation that is removed and made again works on the claim that stayed, and so does one on a
    restored copy; a key that was revoked stays so. `own_redis`: the Redis is the installation's own and takes the Secret's
    password. The webhook secret comes last: pods that name it start when there are keys."""
    async with aclosing(secret):
        values = await secret.add_missing(
            {
                "redis-password": secrets.token_urlsafe(32),
                "ray-token": secrets.token_urlsafe(32),
                **{
                    name: mint(*_new(), tenant_of_new("", role, ""), role, "", 0.0)[1]
                    for name, role in _KEYS.items()
                },
            }
        )
        keys = [_read(name, role, values[name]) for name, role in _KEYS.items()]
        if own_redis:
            config = config.with_settings(redis_password=values["redis-password"])
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    await _add(config, keys)
                    break
                except Unavailable as err:
                    get_log().warning("redis not reached", error=str(err))
                    await asyncio.sleep(_RETRY_S)
        await secret.add_missing({"webhook-secret": secret_of(secrets.token_bytes(32))})


async def _add(config: Config, keys: list[Key]) -> None:
    async with open_key_store(config) as (store, audit):
        known = {key.id for key in await store.all()}
        missing = missing_keys(keys, known, await store.bootstrapped())
        for key in missing:
            detail = {"tenant": key.tenant, "role": key.role, "name": key.name}
            await audit.add(AuditEntry(time.time(), "bootstrap", AuditAction.KEY_CREATED, key.id, "", detail))
        if missing:
            await store.add(*missing)
        await store.note_bootstrapped(*(key.id for key in keys))
        get_log().info("API keys matched", added=[key.id for key in missing], known=len(known))


def _new() -> tuple[str, str]:
    return bootstrap_id(secrets.token_hex(8)), secrets.token_urlsafe(32)


def _read(name: str, role: Role, token: str) -> Key:
    parts = split_token(token)
    if parts is None or not token.startswith("tk-"):
        raise Misconfigured(f"{name} in the Secret is no key: tk-ID.SECRET")
    return mint(*parts, tenant_of_new("", role, parts[0]), role, f"bootstrap {role}", time.time())[0]
