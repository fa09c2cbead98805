"""What tenants used."""

from collections.abc import Sequence
from typing import Protocol

from turnout.domain.gpu_cost import GpuDay
from turnout.domain.tasks import TenantId
from turnout.domain.usage import UsageRow


class UsageLog(Protocol):
    """What tenants used, by day and model. Videos are counted by the task log, in the write that ends them."""

    async def add(self, batch: str, rows: Sequence[UsageRow]) -> None:
        """Adds to what was counted before; a batch of the same name is counted once."""
        ...

    async def read(self, days: Sequence[str], tenant: TenantId | None = None) -> list[UsageRow]:
        """Of one tenant, or of all."""
        ...

    async def tenants(self, days: Sequence[str]) -> set[TenantId]:
        """Those that used something."""
        ...

    async def gpu_days(self, days: Sequence[str], *, workers: bool) -> list[GpuDay]:
        """Where GPU time went, as the manager booked it; by worker only if asked for."""
        ...
