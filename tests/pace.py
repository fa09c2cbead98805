"""How patient a test is: what is only slow does not fail. Every wait of the tests asks here how long it may last."""

import os
import time
from collections.abc import Callable

_REFERENCE_S = 0.02  # what `_work` takes on one idle core of a machine on which the tests' limits were chosen
_MOST = 20.0


def _work() -> None:
    total = 0
    for n in range(250_000):
        total += n * n % 7


def slowness(work: Callable[[], None] = _work, load: Callable[[], float] | None = None) -> float:
    """How many times slower this machine is now than the one on which limits were chosen, 1 at least: by what a piece of work takes,
    and by how many processes want each core."""
    began = time.perf_counter()
    work()
    took_s = time.perf_counter() - began
    wanted = (load or (lambda: os.getloadavg()[0] / (os.cpu_count() or 1)))()
    return min(_MOST, max(1.0, took_s / _REFERENCE_S, wanted))


class Patience:
    """Lasts `limit_s`, and on a machine that turns out to be slow when that is over, as many times longer as it is slower."""

    def __init__(self, limit_s: float, slow: Callable[[], float] = slowness) -> None:
        self.limit_s = limit_s
        self._slow = slow
        self._began = time.monotonic()

    @property
    def waited_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def lost(self) -> bool:
        waited_s = self.waited_s
        if waited_s <= self.limit_s:
            return False
        return waited_s > self.limit_s * self._slow()


def patient(limit_s: float) -> float:
    """A limit for what takes a number of seconds (`subprocess`, `asyncio.wait_for`), by the machine's speed now."""
    return limit_s * slowness()
