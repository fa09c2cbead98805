"""Webhooks that are still to be sent, and what signs them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from turnout.domain.tasks import Task, TaskId, TenantId
from turnout.domain.webhook_secrets import WebhookSecret


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook that is due: the task as it ended and how many tries failed before."""

    task: Task
    tries: int


class Outbox(Protocol):
    """Webhooks to be sent. A task with a `webhook_url` enters with the write that ends it."""

    async def due(self, now: float, hold_s: float, limit: int) -> list[Delivery]:
        """What is due; hidden from others for `hold_s`, so that a crash only delays it."""
        ...

    async def done(self, task_id: TaskId) -> None: ...
    async def again(self, task_id: TaskId, at: float) -> None: ...

    async def count(self, outcome: str) -> None:
        """Counts a try, for the metrics."""
        ...


class WebhookSecretStore(Protocol):
    """Tenants' own secrets, and the service's for all others."""

    async def of_service(self, fresh: str) -> str:
        """The service's own; `fresh`, if it had none."""
        ...

    async def find(self, tenant: TenantId) -> WebhookSecret | None:
        """None for a tenant that has none of its own. Raises Unavailable for one that cannot be read."""
        ...

    async def change(
        self, tenant: TenantId, change: Callable[[WebhookSecret | None], WebhookSecret]
    ) -> WebhookSecret:
        """What it is now. Raises Conflict, and changes nothing, if another one was faster."""
        ...
