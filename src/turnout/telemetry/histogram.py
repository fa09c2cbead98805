"""A histogram in plain numbers: each value adds to it, a scrape reads it. Pure."""

import itertools
from bisect import bisect_left

START_SECONDS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
"""The bounds for how long replicas take to become ready: the manager counts by them, gateways tell."""


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
