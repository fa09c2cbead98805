"""Webhook secrets in Redis: one hash by tenant, and the service's own. In clear, because they sign."""

from collections.abc import Callable

from turnout.adapters.redis import scripts
from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.records import read_one, text
from turnout.domain.errors import Conflict, Unavailable
from turnout.domain.tasks import TenantId
from turnout.domain.webhook_secrets import WebhookSecret
from turnout.schemas.task_records import WEBHOOK_SECRET


class RedisWebhookSecrets:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._name = link.keys.webhook_secrets()

    async def of_service(self, fresh: str) -> str:
        name = self._link.keys.webhook_secret()
        async with translated():
            await self._link.client.set(name, fresh, nx=True)
            return text(await self._link.client.get(name) or fresh.encode())

    async def find(self, tenant: TenantId) -> WebhookSecret | None:
        return await self._read(tenant, await self._get(tenant))

    async def change(
        self, tenant: TenantId, change: Callable[[WebhookSecret | None], WebhookSecret]
    ) -> WebhookSecret:
        data = await self._get(tenant)
        after = change(await self._read(tenant, data))
        # Compared as it is stored: another version may have written fields that this one does not know.
        done = await scripts.replace_webhook_secret(
            self._link, tenant=tenant, before=data or b"", after=WEBHOOK_SECRET.dump(after)
        )
        if not done:
            raise Conflict("Someone else has just replaced this secret.", code="webhook_secret_changed")
        return after

    async def _get(self, tenant: TenantId) -> bytes | None:
        async with translated():
            return await self._link.client.hget(self._name, tenant)

    async def _read(self, tenant: TenantId, data: bytes | None) -> WebhookSecret | None:
        found = await read_one(self._link, "webhook secret", tenant, data, WEBHOOK_SECRET.load)
        if data is not None and found is None:  # the service's own secret must not sign in its place
            raise Unavailable("The webhook secret cannot be read.")
        return found
