"""Rules of scaling that hold wherever replicas are placed: by the manager on its workers, or by Ray. Pure."""

from collections.abc import Iterable, Mapping


def replicas_needed(load: int, concurrency: int, min_replicas: int, max_replicas: int) -> int:
    """How many replicas serve `load` requests or tasks, within the model's limits."""
    return min(max_replicas, max(min_replicas, -(-load // max(1, concurrency))))


def had_its_turn(resident_s: float, turn_s: float) -> bool:
    """Whether a replica that has users may be told to leave for a model that has users and nothing to serve them."""
    return resident_s >= turn_s


def times_since(before: Mapping[str, float], now_true: Iterable[str], now: float) -> dict[str, float]:
    """Since when each name has been true without a break."""
    return {name: before.get(name, now) for name in now_true}
