"""Divides the GPU time that was booked since it looked last among those who worked in that time. The manager at work calls it
every few seconds; if two do, one of them divides."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from turnout.fleet.model_store import ModelStore
from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import RecordKind
from turnout.store.records import number, read_all, text
from turnout.tasks.task_rules import TenantId
from turnout.tenants import tenant_scripts
from turnout.tenants.gpu_division_rules import GpuPart, LastUsers, divide, part_of
from turnout.tenants.usage_log import USAGE_MS
from turnout.tenants.usage_rules import day_of

GPU_USERS = RecordKind[LastUsers]("gpu users", LastUsers)
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class GpuDivider:
    """`now` is the wall clock."""

    link: RedisConnection
    models: ModelStore
    now: Callable[[], float]

    async def look(self) -> None:
        client, keys, now = self.link.client, self.link.keys, self.now()
        async with translated(), client.pipeline(transaction=True) as pipe:
            pipe.get(keys.gpu_divisions())
            pipe.hgetall(keys.gpu_undivided())
            pipe.hgetall(keys.gpu_work())
            pipe.hgetall(keys.gpu_users())
            divisions, undivided, worked, users = await pipe.execute()
        if not undivided and not worked:
            return
        idle_s = {name: model.scaling.idle_s for name, model in (await self.models.all()).items()}
        docs = {text(model): doc for model, doc in users.items()}
        last = await read_all(self.link, GPU_USERS, docs)
        division = divide(
            _parts(undivided), _work(worked), last, idle_s, now, (day_of(now), day_of(now - _DAY_S))
        )
        gone = last.keys() - idle_s.keys() - division.users.keys()
        await tenant_scripts.divide_gpu_time(
            self.link,
            number_before=text(divisions or b""),
            usage_ms=USAGE_MS,
            parts=[
                (tenant, part.day, part.state, part.model, ms)
                for (part, tenant), ms in division.parts.items()
            ],
            work=[(text(name), number(ms)) for name, ms in worked.items()],
            users={model: GPU_USERS.dump(found) for model, found in division.users.items()}
            | dict.fromkeys(gone, b""),
        )


def _parts(undivided: dict[bytes, bytes]) -> dict[GpuPart, int]:
    found = {part_of(text(name)): number(ms) for name, ms in undivided.items()}
    return {part: ms for part, ms in found.items() if part is not None and ms > 0}


def _work(worked: dict[bytes, bytes]) -> dict[str, dict[TenantId, int]]:
    found: defaultdict[str, dict[TenantId, int]] = defaultdict(dict)
    for name, ms in worked.items():
        tenant, _, model = text(name).partition(":")
        found[model][TenantId(tenant)] = number(ms)
    return found
