"""Whether what a service holds grows while it runs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tests.soak.samples import Sample

_PART = 0.25


@dataclass(frozen=True, slots=True)
class Verdict:
    """`before` and `after` are medians of the first and the last quarter of the time that counts."""

    name: str
    before: float
    after: float
    hours: float

    @property
    def flat(self) -> bool:
        """A tenth more, and at least a few of whatever is counted, is noise."""
        return self.after - self.before <= max(0.1 * self.before, 10.0)

    @property
    def per_hour(self) -> float:
        return (self.after - self.before) / self.hours


def verdict(name: str, samples: Sequence[Sample], since_s: float, until_s: float) -> Verdict | None:
    found = [s for s in samples if since_s <= s.at_s <= until_s and name in s.figures]
    count = int(len(found) * _PART)
    if count < 2:
        return None
    first, last = found[:count], found[-count:]
    apart_s = median(s.at_s for s in last) - median(s.at_s for s in first)
    before, after = (median(s.figures[name] for s in part) for part in (first, last))
    return Verdict(name, before, after, apart_s / 3600)
