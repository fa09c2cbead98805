"""Webhook secrets in Redis: one hash by tenant, and the service's own. In clear, because they sign."""

from collections.abc import Callable

from turnout.errors import Conflict, Unavailable
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import read_one, text
from turnout.tasks import task_scripts
from turnout.tasks.task_rules import TenantId
from turnout.tasks.webhook_secret_rules import WebhookSecret

WEBHOOK_SECRET = RecordKind[WebhookSecret]("webhook secret", WebhookSecret)


class WebhookSecretStore:
    """Tenants' own secrets, and the service's for all others."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._name = link.keys.webhook_secrets()

    async def of_service(self, fresh: str) -> str:
        """The service's own; `fresh`, if it had none."""
        name = self._link.keys.webhook_secret()
        async with translated():
            await self._link.client.set(name, fresh, nx=True)
            return text(await self._link.client.get(name) or fresh.encode())

    async def find(self, tenant: TenantId) -> WebhookSecret | None:
        """None for a tenant that has none of its own. Raises Unavailable for one that cannot be read."""
        return await self._read(tenant, await self._get(tenant))

    async def change(
        self, tenant: TenantId, change: Callable[[WebhookSecret | None], WebhookSecret]
    ) -> WebhookSecret:
        """What it is now. Raises Conflict, and changes nothing, if another one was faster."""
        data = await self._get(tenant)
        after = change(await self._read(tenant, data))
        # Compared as it is stored: another version may have written fields that this one does not know.
        done = await task_scripts.replace_webhook_secret(
            self._link, tenant=tenant, before=data or b"", after=WEBHOOK_SECRET.dump(after)
        )
        if not done:
            raise Conflict("Someone else has just replaced this secret.", code="webhook_secret_changed")
        return after

    async def remove(self, tenant: TenantId) -> None:
        async with translated():
            await self._link.client.hdel(self._name, tenant)

    async def _get(self, tenant: TenantId) -> bytes | None:
        async with translated():
            return await self._link.client.hget(self._name, tenant)

    async def _read(self, tenant: TenantId, data: bytes | None) -> WebhookSecret | None:
        found = await read_one(self._link, WEBHOOK_SECRET, tenant, data)
        if data is not None and found is None:  # the service's own secret must not sign in its place
            raise Unavailable("The webhook secret cannot be read.")
        return found
