"""The registry in Redis: models, workers, their orders, routes, demand, and what the manager must not forget.

Streams carry only names of what changed (`fleet:news` to the manager, `fleet:changes` from it); what is so now is
read from its own key. So a missed entry delays, and never misleads.
"""

import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from turnout.adapters.redis.connection import RedisConnection, translated
from turnout.adapters.redis.shared_read import SharedRead
from turnout.domain.errors import NotFound
from turnout.domain.fleet import GivenUp
from turnout.domain.model_status import ModelStatus
from turnout.domain.serving import (
    Beat,
    DemandReport,
    Enrolment,
    ModelRoutes,
    OrderSheet,
    ReplicaId,
    ServedModel,
    WorkerId,
)
from turnout.ports import FleetFigures, News, Publication, Saved
from turnout.schemas.fleet_records import (
    ASKS,
    BEAT,
    CENSUS,
    ENROLMENT,
    MODEL,
    NOTES,
    ORDERS,
    REPLICA,
    ROUTES,
    STATUSES,
)

_WORKER_S = 7 * 86_400
_BEAT_S = 3_600
_DEMAND_S = 6
_MAX_NEWS = 10_000
_TAIL_BLOCK_MS = 2_000
_BATCH = 5_000


class RedisRegistry:
    def __init__(self, link: RedisConnection) -> None:
        self._link = link
        self._client = link.client
        here = files("turnout.adapters.redis")
        self._heard = self._client.register_script(here.joinpath("fleet_heard.lua").read_text())
        self._publish = self._client.register_script(here.joinpath("fleet_publish.lua").read_text())
        self._orders_bell = SharedRead(link, self._key("changes"), "w")

    def _key(self, *parts: str) -> str:
        return self._link.key("fleet", *parts)

    # Models

    async def put_model(self, model: ServedModel) -> None:
        await self._change_models("hset", model.name, MODEL.dump_json(model))

    async def declare_models(self, models: Sequence[ServedModel]) -> list[str]:
        declared = self._key("declared")
        named = {model.name: MODEL.dump_json(model) for model in models}

        async def change(pipe: Any) -> list[str]:
            before = {name.decode() for name in await pipe.smembers(declared)}
            gone = sorted(before - named.keys())
            pipe.multi()
            if gone:
                pipe.hdel(self._key("models"), *gone)
            if named:
                pipe.hset(self._key("models"), mapping=named)
                pipe.sadd(declared, *named)
            if gone:
                pipe.srem(declared, *gone)
            for name in (*gone, *named):
                self._tell(pipe, "m", name)
            return gone

        async with translated():
            return await self._client.transaction(change, declared, value_from_callable=True)

    async def models(self) -> dict[str, ServedModel]:
        async with translated():
            found = await self._client.hgetall(self._key("models"))
        return {name.decode(): MODEL.validate_json(doc) for name, doc in sorted(found.items())}

    async def model(self, name: str) -> ServedModel:
        async with translated():
            doc = await self._client.hget(self._key("models"), name)
        if doc is None:
            raise NotFound(f"There is no model {name}.", "model", "model_not_found")
        return MODEL.validate_json(doc)

    async def remove_model(self, name: str) -> bool:
        return bool(await self._change_models("hdel", name))

    async def _change_models(self, command: str, *arguments: str | bytes) -> int:
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            getattr(pipe, command)(self._key("models"), *arguments)
            pipe.srem(self._key("declared"), arguments[0])
            self._tell(pipe, "m", arguments[0])
            return (await pipe.execute())[0]

    def _tell(self, pipe: Any, kind: str, name: str | bytes) -> None:
        pipe.xadd(self._key("news"), {kind: name}, maxlen=_MAX_NEWS, approximate=True)

    # Workers

    async def enrol(self, worker: Enrolment) -> None:
        key = self._key("worker", worker.id)
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(key, "doc", ENROLMENT.dump_json(worker))
            pipe.expire(key, _WORKER_S)
            pipe.sadd(self._key("workers"), worker.id)
            self._tell(pipe, "w", worker.id)
            await pipe.execute()

    async def enrolled(self, worker: WorkerId) -> Enrolment | None:
        return (await self._enrolments([worker])).get(worker)

    async def enrolments(self, workers: Collection[WorkerId] | None = None) -> dict[WorkerId, Enrolment]:
        if workers is not None:
            return await self._enrolments(workers)
        async with translated():
            names = [w.decode() for w in await self._client.smembers(self._key("workers"))]
        found = await self._enrolments([WorkerId(name) for name in sorted(names)])
        lapsed = [name for name in names if name not in found]
        if lapsed:
            async with translated():
                await self._client.srem(self._key("workers"), *lapsed)
        return found

    async def _enrolments(self, workers: Collection[WorkerId]) -> dict[WorkerId, Enrolment]:
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.hmget(self._key("worker", worker), "doc", "draining")
            found = await pipe.execute()
        return {
            worker: replace(ENROLMENT.validate_json(doc), draining=draining == b"1")
            for worker, (doc, draining) in zip(workers, found, strict=True)
            if doc is not None
        }

    async def set_draining(self, worker: WorkerId, draining: bool) -> None:
        if await self.enrolled(worker) is None:
            raise NotFound(f"There is no worker {worker}.", "worker", "worker_not_found")
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(self._key("worker", worker), "draining", "1" if draining else "0")
            self._tell(pipe, "w", worker)
            await pipe.execute()

    async def heard(self, worker: WorkerId, beat: Beat) -> int:
        arguments = (worker, BEAT.dump_json(beat), _BEAT_S * 1000, _WORKER_S * 1000, _MAX_NEWS)
        async with translated():
            seq = int(await self._heard(keys=[self._link.prefix], args=arguments))
        if not seq:
            raise NotFound(f"There is no worker {worker}.", "worker", "worker_not_found")
        return seq

    async def beats(self, workers: Collection[WorkerId]) -> dict[WorkerId, Beat]:
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            for worker in workers:
                pipe.hmget(self._key("beat", worker), "doc", "seq")
            found = await pipe.execute()
        return {
            worker: replace(BEAT.validate_json(doc), seq=int(seq))
            for worker, (doc, seq) in zip(workers, found, strict=True)
            if doc is not None
        }

    # Orders and routes

    async def orders(self, worker: WorkerId) -> OrderSheet | None:
        async with translated():
            version, doc = await self._client.hmget(self._key("orders", worker), "v", "doc")
        return None if doc is None else OrderSheet(int(version), ORDERS.validate_json(doc))

    async def wait_orders(self, worker: WorkerId, seen: int, timeout_s: float) -> OrderSheet | None:
        deadline = time.monotonic() + timeout_s
        async with self._orders_bell.listening(worker) as ring:
            while True:
                ring.clear()
                sheet = await self.orders(worker)
                if sheet is not None and sheet.version != seen:
                    return sheet
                if time.monotonic() >= deadline:
                    return None
                await self._orders_bell.wait(ring, deadline)

    async def tail_routes(self) -> AsyncIterator[Mapping[str, ModelRoutes | None]]:
        stream, key = self._key("changes"), self._key("routes")
        async with translated():
            newest = await self._client.xrevrange(stream, count=1)
            found = await self._client.hgetall(key)
        cursor = newest[0][0] if newest else b"0"
        yield {name.decode(): ROUTES.validate_json(doc) for name, doc in found.items()}
        while True:
            async with translated():
                read = await self._client.xread({stream: cursor}, count=_BATCH, block=_TAIL_BLOCK_MS)
            entries: list[Any] = read[0][1] if read else []
            if not entries:
                continue
            cursor = entries[-1][0]
            names = sorted({fields[b"m"] for _, fields in entries if b"m" in fields})
            if names:
                async with translated():
                    docs = await self._client.hmget(key, names)
                yield {
                    name.decode(): None if doc is None else ROUTES.validate_json(doc)
                    for name, doc in zip(names, docs, strict=True)
                }

    async def statuses(self) -> dict[str, ModelStatus]:
        async with translated():
            doc = await self._client.hget(self._key("manager"), "statuses")
        return STATUSES.validate_json(doc) if doc else {}

    async def figures(self) -> FleetFigures:
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            pipe.hget(self._key("manager"), "census")
            pipe.hgetall(self._key("deeds"))
            pipe.smembers(self._key("workers"))
            census, deeds, names = await pipe.execute()
            workers = sorted(WorkerId(name.decode()) for name in names)
            pipe.time()
            for worker in workers:
                pipe.hget(self._key("beat", worker), "seq")
            (seconds, micros), *beats = await pipe.execute()
        now = seconds + micros / 1e6  # a beat's number is the time at which Redis got it, in microseconds
        return FleetFigures(
            CENSUS.validate_json(census) if census else {},
            {deed.decode(): int(count) for deed, count in sorted(deeds.items())},
            {w: max(0.0, now - int(seq) / 1e6) for w, seq in zip(workers, beats, strict=True) if seq},
        )

    async def given_up(self) -> Mapping[str, GivenUp]:
        async with translated():
            doc = await self._client.hget(self._key("manager"), "notes")
        return NOTES.validate_json(doc).given_up if doc else {}

    # Demand

    async def report_demand(self, gateway: str, asks: Mapping[str, DemandReport]) -> None:
        key = self._key("demand", gateway)
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(key, "doc", ASKS.dump_json(dict(asks)))
            pipe.hincrby(key, "n", 1)
            pipe.expire(key, _DEMAND_S)
            pipe.sadd(self._key("gateways"), gateway)
            self._tell(pipe, "g", gateway)
            await pipe.execute()

    async def gateways(self) -> list[str]:
        async with translated():
            named = sorted(g.decode() for g in await self._client.smembers(self._key("gateways")))
            pipe = self._client.pipeline(transaction=False)
            for gateway in named:
                pipe.exists(self._key("demand", gateway))
            alive = await pipe.execute()
        return [gateway for gateway, there in zip(named, alive, strict=True) if there]

    async def demand(self) -> dict[str, tuple[int, Mapping[str, DemandReport]]]:
        async with translated():
            gateways = sorted(g.decode() for g in await self._client.smembers(self._key("gateways")))
            pipe = self._client.pipeline(transaction=False)
            for gateway in gateways:
                pipe.hmget(self._key("demand", gateway), "n", "doc")
            found = dict(zip(gateways, await pipe.execute(), strict=True))
            lapsed = [gateway for gateway, (_, doc) in found.items() if doc is None]
            if lapsed:
                await self._client.srem(self._key("gateways"), *lapsed)
        return {g: (int(n), ASKS.validate_json(doc)) for g, (n, doc) in found.items() if doc is not None}

    # The manager's side

    async def wait_news(self, after: str, timeout_s: float) -> News:
        stream = self._key("news")
        async with translated(timeout_s + 5):
            if not after:
                newest = await self._client.xrevrange(stream, count=1)
                return News(newest[0][0].decode() if newest else "0", models=True)
            read = await self._client.xread(
                {stream: after}, count=_BATCH, block=max(1, int(timeout_s * 1000))
            )
        entries: list[Any] = read[0][1] if read else []
        if not entries:
            return News(after)
        named: dict[bytes, set[str]] = {b"w": set(), b"g": set(), b"m": set(), b"q": set()}
        for _, fields in entries:
            for kind, name in fields.items():
                named[kind].add(name.decode())
        return News(
            entries[-1][0].decode(),
            frozenset(WorkerId(w) for w in named[b"w"]),
            frozenset(named[b"g"]),
            bool(named[b"m"]),
        )

    async def saved(self) -> Saved:
        async with translated(), self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(self._key("replicas"))
            pipe.hgetall(self._key("versions"))
            pipe.hkeys(self._key("routes"))
            pipe.hget(self._key("manager"), "notes")
            replicas, versions, routed, notes = await pipe.execute()
        return Saved(
            {ReplicaId(i.decode()): REPLICA.validate_json(doc) for i, doc in replicas.items()},
            {WorkerId(w.decode()): int(v) for w, v in versions.items()},
            frozenset(name.decode() for name in routed),
            NOTES.validate_json(notes) if notes else None,
        )

    async def publish(self, right: str, owner: str, publication: Publication) -> bool:
        writes = list[str | bytes | int]()
        for replica_id, replica in publication.replicas.items():
            if replica is None:
                writes += ("hdel", "replicas", replica_id, "")
            else:
                writes += ("hset", "replicas", replica_id, REPLICA.dump_json(replica))
        for worker, sheet in publication.orders.items():
            if sheet is None:
                # Old orders must not outlive their version: the worker would follow them when it comes back.
                writes += ("hdel", "versions", worker, "", "del", f"orders:{worker}", "", "")
                continue
            writes += ("hset", "versions", worker, sheet.version)
            writes += ("orders", f"orders:{worker}", sheet.version, ORDERS.dump_json(sheet.orders))
            writes += ("tell", "", "w", worker)
        for model, routes in publication.routes.items():
            if routes is None:
                writes += ("hdel", "routes", model, "")
            else:
                writes += ("hset", "routes", model, ROUTES.dump_json(routes))
            writes += ("tell", "", "m", model)
        if publication.notes is not None:
            writes += ("hset", "manager", "notes", NOTES.dump_json(publication.notes))
        if publication.statuses is not None:
            writes += ("hset", "manager", "statuses", STATUSES.dump_json(dict(publication.statuses)))
        if publication.census is not None:
            writes += ("hset", "manager", "census", CENSUS.dump_json(dict(publication.census)))
        for deed, count in publication.deeds.items():
            writes += ("hincrby", "deeds", deed, count)
        arguments = (right, owner, _WORKER_S * 1000, _MAX_NEWS, *writes)
        async with translated():
            return bool(await self._publish(keys=[self._link.prefix], args=arguments))
