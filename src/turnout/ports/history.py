"""What the service did over the last day, in intervals of equal length."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class HistoryStore(Protocol):
    async def add(self, interval: int, gauges: Mapping[str, float], sums: Mapping[str, float]) -> None:
        """Gauges take the place of what was there, sums are added to it. Several gateways write one interval."""
        ...

    async def read(self, intervals: Sequence[int]) -> list[Mapping[str, float]]:
        """Of each interval what there is."""
        ...
