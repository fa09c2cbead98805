"""What gangs on other machines report of themselves."""

from typing import Protocol

from turnout.domain.slots import GangReport
from turnout.domain.tasks import GangId


class GangReports(Protocol):
    async def all(self) -> dict[GangId, GangReport]:
        """The last reports of the gangs that are alive."""
        ...


class GangReportStore(GangReports, Protocol):
    async def put(self, report: GangReport) -> None:
        """Must be repeated every few seconds: an old report is ignored."""
        ...

    async def remove(self, gang: GangId) -> None: ...
