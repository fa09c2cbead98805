"""What tenants used, in Redis: kept for a year. Videos are added by the script that ends their task."""

from collections.abc import Sequence
from dataclasses import replace

from turnout.fleet.machine_rules import WorkerId
from turnout.store.connection import RedisConnection, translated
from turnout.store.records import number, text
from turnout.tasks.task_rules import TenantId
from turnout.tenants import tenant_scripts
from turnout.tenants.gpu_cost_rules import GpuDay
from turnout.tenants.gpu_division_rules import SERVICE, part_of
from turnout.tenants.gpu_time_rules import GpuCell, GpuState, cells_of
from turnout.tenants.usage_rules import FIGURES, UsageRow, Used

USAGE_MS = 400 * 86_400_000
GPU_WORKERS_MS = 93 * 86_400_000  # there may be thousands a day; what is asked for at once is less
_AT_ONCE = 500  # hashes that are read in one go
_WORK = b"work::"
_SHARE = b"share:"


class UsageLog:
    """What tenants used, by day and model. Videos are counted by the task log, in the write that ends them."""

    def __init__(self, link: RedisConnection) -> None:
        self._link = link

    async def add(self, batch: str, rows: Sequence[UsageRow]) -> None:
        """Adds to what was counted before; a batch of the same name is counted once."""
        amounts = [
            (row.day, row.tenant, row.model, figure, amount)
            for row in rows
            for figure, amount in amounts_of(row.used)
        ]
        await tenant_scripts.add_usage(self._link, batch=batch, usage_ms=USAGE_MS, amounts=amounts)

    async def read(self, days: Sequence[str], tenant: TenantId | None = None) -> list[UsageRow]:
        """Of one tenant, or of all."""
        client, keys = self._link.client, self._link.keys
        if tenant is not None:
            wanted = [(day, tenant) for day in days]
        else:
            by_day = zip(days, await self._tenants(days), strict=True)
            wanted = [(day, name) for day, names in by_day for name in sorted(names)]
        rows: list[UsageRow] = []
        for start in range(0, len(wanted), _AT_ONCE):
            batch = wanted[start : start + _AT_ONCE]
            async with translated():
                pipe = client.pipeline(transaction=False)
                for day, name in batch:
                    pipe.hgetall(keys.usage_of(day, name))
                found = await pipe.execute()
            for (day, name), counts in zip(batch, found, strict=True):
                rows += _rows(day, name, counts)
        return rows

    async def tenants(self, days: Sequence[str]) -> set[TenantId]:
        """Those that used something."""
        return set[TenantId]().union(*await self._tenants(days)) - {SERVICE}

    async def _tenants(self, days: Sequence[str]) -> list[set[TenantId]]:
        async with translated():
            pipe = self._link.client.pipeline(transaction=False)
            for day in days:
                pipe.smembers(self._link.keys.usage_day(day))
            return [{TenantId(text(name)) for name in names} for names in await pipe.execute()]

    async def take_back(self, worker: WorkerId, months: Sequence[str]) -> dict[str, int]:
        """Undoes the GPU time that was booked for a worker in these months; the ms by model."""
        return await tenant_scripts.take_back_gpu_time(self._link, worker=worker, months=months)

    async def times_taken_back(self) -> int:
        """How often GPU time was taken back: it changes days that are over."""
        async with translated():
            return number(await self._link.client.get(self._link.keys.gpu_taken_back()))

    async def gpu_days(self, days: Sequence[str], *, workers: bool) -> list[GpuDay]:
        """Where GPU time went, as the manager booked it; by worker only if asked for."""
        keys = self._link.keys
        async with translated():
            pipe = self._link.client.pipeline(transaction=False)
            for day in days:
                pipe.hgetall(keys.gpu_models(day))
                if workers:
                    pipe.hgetall(keys.gpu_workers(day))
            pipe.hgetall(keys.gpu_undivided())
            *found, undivided = await pipe.execute()
        every = 2 if workers else 1
        by_worker = found[1::2] if workers else [dict[bytes, bytes]()] * len(days)
        waiting = {part_of(text(name)): number(ms) for name, ms in undivided.items()}
        return [
            GpuDay(
                day,
                _cells(models),
                _cells(held),
                {
                    text(name)[len(_WORK) :]: number(ms)
                    for name, ms in models.items()
                    if name.startswith(_WORK)
                },
                _divided(models),
                {
                    p.model: ms
                    for p, ms in waiting.items()
                    if p and (p.day, p.state) == (day, GpuState.LOADING)
                },
            )
            for day, models, held in zip(days, found[::every], by_worker, strict=True)
        ]


def amounts_of(used: Used) -> list[tuple[str, int]]:
    """The figures that are not zero."""
    return [(figure, amount) for figure in FIGURES if (amount := getattr(used, figure))]


def _cells(counts: dict[bytes, bytes]) -> dict[GpuCell, int]:
    return cells_of({text(name): number(ms) for name, ms in counts.items()})


def _divided(counts: dict[bytes, bytes]) -> dict[tuple[GpuState, str], int]:
    found: dict[tuple[GpuState, str], int] = {}
    for name, ms in counts.items():
        if name.startswith(_SHARE) and (part := part_of(text(name))) is not None:
            found[part.state, part.model] = number(ms)
    return found


def _rows(day: str, tenant: TenantId, counts: dict[bytes, bytes]) -> list[UsageRow]:
    models: dict[str, Used] = {}
    for field, amount in counts.items():
        figure, _, model = text(field).partition(":")
        if figure in FIGURES:
            models[model] = replace(models.get(model, Used()), **{figure: number(amount)})
    return [UsageRow(day, tenant, model, used) for model, used in sorted(models.items())]
