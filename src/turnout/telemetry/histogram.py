"""A histogram in plain numbers: each value adds to it, a scrape reads it. Pure."""

import itertools
from bisect import bisect_left


class Histogram:
    """How many values fell below each bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        names = (*(str(float(bound)) for bound in self.bounds), "+Inf")
        return list(zip(names, itertools.accumulate(self.counts), strict=True))
