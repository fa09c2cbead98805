"""Counts what comes from each address in windows of a minute. In this process alone; the address that came longest ago is forgotten
first. An address may be that of a proxy, or of many people behind a NAT."""

from collections import OrderedDict
from collections.abc import Callable

from turnout.relay.connection_counts import group_of

_WINDOW_S = 60.0
_MAX_ADDRESSES = 10_000


class AddressCounts:
    """`now` is any clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._counted: OrderedDict[str, tuple[int, float]] = OrderedDict()  # count, end of the window

    def __len__(self) -> int:
        return len(self._counted)

    def add(self, address: str) -> tuple[str, int, float] | None:
        """The network that is counted, how often it came before in this window, and for how long that lasts. None for no address."""
        group, now = address if "/" in address else group_of(address), self._now()
        if not group:
            return None
        count, ends_at = self._counted.pop(group, (0, 0.0))
        if now >= ends_at:
            count, ends_at = 0, now + _WINDOW_S
        self._counted[group] = (count + 1, ends_at)
        while len(self._counted) > _MAX_ADDRESSES:
            self._counted.popitem(last=False)
        return group, count, ends_at - now
