"""What gateways and the manager tell each other in Redis: routes to gateways; demand and admins' wishes from them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from turnout.fleet.fleet_records import DEMAND, ROUTES
from turnout.fleet.manager_news import tell_manager
from turnout.fleet.route_rules import AdminWish, DemandReport, ModelRoutes
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import number, read_all, text

_DEMAND_S = 6
_WISH_S = 30
_WAKE, _STOP = "wake:", "stop:"
_TAIL_BLOCK_MS = 2_000
_BATCH = 5_000


class RouteTable:
    """The routes that the manager published."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def tail(self) -> AsyncIterator[Mapping[str, ModelRoutes | None]]:
        """All routes, then what changes, for ever. Raises Unavailable; a new tail begins with all routes again."""
        stream, key = self._link.keys.changes(), self._link.keys.routes()
        client = self._link.client
        async with translated():
            newest = await client.xrevrange(stream, count=1)
            found = await client.hgetall(key)
        cursor = newest[0][0] if newest else b"0"
        docs = {text(name): doc for name, doc in found.items()}
        yield await read_all(self._link, ROUTES, docs)
        while True:
            async with translated():
                read = await client.xread({stream: cursor}, count=_BATCH, block=_TAIL_BLOCK_MS)
            entries: list[Any] = read[0][1] if read else []
            if not entries:
                continue
            cursor = entries[-1][0]
            names = sorted({fields[b"m"] for _, fields in entries if b"m" in fields})
            if names:
                async with translated():
                    read = dict(zip(map(text, names), await client.hmget(key, names), strict=True))
                routes = await read_all(self._link, ROUTES, read)
                yield {name: routes.get(name) for name in read}


class DemandReports:
    """What each gateway's clients want, and what admins do. A report lapses after a few seconds, a wish after half a minute."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client

    async def report(self, gateway: str, demand: Mapping[str, DemandReport]) -> None:
        """All that the gateway sees now; must be repeated every few seconds. A request that waits ends a wish to stop."""
        key = self._link.keys.demand(gateway)
        waited_for = [_STOP + model for model, report in demand.items() if report.waiting]
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(key, "doc", DEMAND.dump(dict(demand)))
            pipe.hincrby(key, "n", 1)
            pipe.expire(key, _DEMAND_S)
            pipe.sadd(self._link.keys.gateways(), gateway)
            if waited_for:
                pipe.zrem(self._link.keys.wishes(), *waited_for)
            tell_manager(self._link, pipe, "g", gateway)
            await pipe.execute()

    async def wish(self, model: str, *, stop: bool) -> None:
        """An admin wants the model woken or stopped; the last word counts."""
        key, now = self._link.keys.wishes(), await self._link.now()
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.zrem(key, _WAKE + model, _STOP + model)
            pipe.zadd(key, {(_STOP if stop else _WAKE) + model: now})
            pipe.expire(key, _WISH_S)
            tell_manager(self._link, pipe, "g", "")
            await pipe.execute()

    async def wishes(self) -> list[AdminWish]:
        now = await self._link.now()
        async with translated():
            found = await self._client.zrangebyscore(
                self._link.keys.wishes(), now - _WISH_S, "+inf", withscores=True
            )
        named = ((text(name), max(0.0, now - at)) for name, at in found)
        return [AdminWish(name[len(_STOP) :], name.startswith(_STOP), ago_s) for name, ago_s in named]

    async def gateways(self) -> list[str]:
        """Those whose report has not lapsed."""
        async with translated():
            named = sorted(text(g) for g in await self._client.smembers(self._link.keys.gateways()))
            pipe = self._client.pipeline(transaction=False)
            for gateway in named:
                pipe.exists(self._link.keys.demand(gateway))
            alive = await pipe.execute()
        return [gateway for gateway, there in zip(named, alive, strict=True) if there]

    async def all(self) -> dict[str, tuple[int, Mapping[str, DemandReport]]]:
        """Each gateway's last report and its number."""
        async with translated():
            gateways = sorted(text(g) for g in await self._client.smembers(self._link.keys.gateways()))
            pipe = self._client.pipeline(transaction=False)
            for gateway in gateways:
                pipe.hmget(self._link.keys.demand(gateway), "n", "doc")
            found = dict(zip(gateways, await pipe.execute(), strict=True))
            lapsed = [gateway for gateway, (_, doc) in found.items() if doc is None]
            if lapsed:
                await self._client.srem(self._link.keys.gateways(), *lapsed)
        docs = {gateway: doc for gateway, (_, doc) in found.items()}
        reports = await read_all(self._link, DEMAND, docs)
        return {gateway: (number(found[gateway][0]), report) for gateway, report in reports.items()}
