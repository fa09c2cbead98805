"""What gangs on other machines report of themselves, in Redis: one field each. An old report is ignored; its age is by the server's clock.
And since when models wait on Ray."""

from dataclasses import replace
from typing import Protocol

from turnout.fleet.fleet_records import GANG, GANG_WAITS
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.ray_rules import GangWaits
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import read_all, read_one, text
from turnout.tasks.task_rules import GangId


class GangReports(Protocol):
    async def all(self) -> dict[GangId, GangReport]:
        """The last reports of the gangs that are alive."""
        ...


_FRESH_S = 10.0
_WAITS_S = 60  # after a longer time without a manager all waits begin anew: nodes may have gone, too


class GangReportStore:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        self._name = link.keys.gangs()

    async def put(self, report: GangReport) -> None:
        """Must be repeated every few seconds: an old report is ignored."""
        told = replace(report, at=await self._link.now())
        async with translated():
            await self._client.hset(self._name, report.gang, GANG.dump(told))

    async def remove(self, gang: GangId) -> None:
        async with translated():
            await self._client.hdel(self._name, gang)

    async def all(self) -> dict[GangId, GangReport]:
        async with translated():
            found: dict[bytes, bytes] = await self._client.hgetall(self._name)
        named = {text(gang): value for gang, value in found.items()}
        reports = (await read_all(self._link, GANG, named)).values()
        now = await self._link.now()
        gone = [r.gang for r in reports if now - r.at > 6 * _FRESH_S]
        if gone:
            async with translated():
                await self._client.hdel(self._name, *gone)
        return {r.gang: r for r in reports if now - r.at <= _FRESH_S}

    async def waits(self) -> GangWaits:
        """As they were kept last; none have begun where nothing was kept."""
        async with translated():
            found: bytes | None = await self._client.get(self._link.keys.gang_waits())
        return await read_one(self._link, GANG_WAITS, "all", found) or GangWaits()

    async def keep_waits(self, waits: GangWaits) -> None:
        async with translated():
            await self._client.set(self._link.keys.gang_waits(), GANG_WAITS.dump(waits), ex=_WAITS_S)
