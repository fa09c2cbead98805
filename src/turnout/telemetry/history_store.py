"""The history in Redis: one small hash for each interval, gone after a day."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from turnout.store.connection import RedisConnection, translated
from turnout.store.records import text

_TTL_S = 25 * 3600


class HistoryStore:
    def __init__(self, link: RedisConnection) -> None:
        self._client = link.client
        self._name = link.keys.history

    async def add(self, interval: int, gauges: Mapping[str, float], sums: Mapping[str, float]) -> None:
        """Gauges take the place of what was there, sums are added to it. Several gateways write one interval."""
        name = self._name(interval)
        async with translated(), self._client.pipeline() as pipe:
            if gauges:
                pipe.hset(name, mapping=dict(gauges))
            for column, amount in sums.items():
                pipe.hincrbyfloat(name, column, amount)
            pipe.expire(name, _TTL_S)
            await pipe.execute()

    async def read(self, intervals: Sequence[int]) -> list[Mapping[str, float]]:
        """Of each interval what there is."""
        async with translated(), self._client.pipeline(transaction=False) as pipe:
            for interval in intervals:
                pipe.hgetall(self._name(interval))
            found = await pipe.execute()
        return [_figures(one) for one in found]


def _figures(found: Mapping[bytes, bytes]) -> dict[str, float]:
    """What is no number is left out: the plots go on without it."""
    figures: dict[str, float] = {}
    for name, value in found.items():
        with suppress(ValueError):
            figures[text(name)] = float(value)
    return figures
