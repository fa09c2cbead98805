"""Rules of scaling that hold wherever replicas are placed: by the manager on its workers, or by Ray. Pure."""

from collections.abc import Iterable, Mapping

_TURN_FOR_WAKE = 6.0
_LONG_TURN_S = 60.0


def replicas_needed(load: int, concurrency: int, min_replicas: int, max_replicas: int) -> int:
    """How many replicas serve `load` requests or tasks, within the model's limits."""
    return min(max_replicas, max(min_replicas, -(-load // max(1, concurrency))))


def had_its_turn(resident_s: float, turn_s: float) -> bool:
    """Whether a replica that has users may be told to leave for a model that has users and nothing to serve them."""
    return resident_s >= turn_s


def turn_length_s(min_resident_s: float, wake_s: float, own_users_wait: bool) -> float:
    """How long a replica that has users stays though others wait: so long that loading takes a small part of the time.
    Past a minute it stays only while users of its own wait, too. Then the GPU is what all wait for, and shorter turns
    would make everybody wait longer."""
    worth_it_s = _TURN_FOR_WAKE * wake_s
    return max(min_resident_s, worth_it_s if own_users_wait else min(worth_it_s, _LONG_TURN_S))


def times_since(before: Mapping[str, float], now_true: Iterable[str], now: float) -> dict[str, float]:
    """Since when each name has been true without a break."""
    return {name: before.get(name, now) for name in now_true}
