"""What gateways and the manager tell each other: routes to replicas, and demand for models."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from turnout.domain.serving import DemandReport, ModelRoutes


class RouteTable(Protocol):
    """The routes that the manager published."""

    def tail(self) -> AsyncIterator[Mapping[str, ModelRoutes | None]]:
        """All routes, then what changes, for ever. Raises Unavailable; a new tail begins with all routes again."""
        ...


class DemandReports(Protocol):
    """What each gateway's clients want. A report lapses after a few seconds."""

    async def report(self, gateway: str, demand: Mapping[str, DemandReport]) -> None:
        """All that the gateway sees now; must be repeated every few seconds."""
        ...

    async def gateways(self) -> list[str]:
        """Those whose report has not lapsed."""
        ...

    async def all(self) -> dict[str, tuple[int, Mapping[str, DemandReport]]]:
        """Each gateway's last report and its number."""
        ...
