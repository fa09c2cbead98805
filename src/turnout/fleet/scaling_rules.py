"""Rules of scaling that hold wherever replicas are placed: on workers, by Ray, as jobs on Kubernetes. Pure."""

from collections.abc import Iterable, Mapping

_STAY_FOR_WAKE = 6.0
_LONG_STAY_S = 60.0


def replicas_needed(load: int, concurrency: int, min_replicas: int, max_replicas: int) -> int:
    """How many replicas serve `load` requests or tasks, within the model's limits."""
    return min(max_replicas, max(min_replicas, -(-load // max(1, concurrency))))


def residence_s(min_resident_s: float, wake_s: float, used: bool, own_users_wait: bool) -> float:
    """How long a replica stays once it is ready, though others wait: with users so long that loading takes a small part of the
    time. Past a minute it stays only while users of its own wait, too. Then the GPU is what all wait for, and shorter stays
    would make everybody wait longer."""
    if not used:
        return min_resident_s
    worth_it_s = _STAY_FOR_WAKE * wake_s
    return max(min_resident_s, worth_it_s if own_users_wait else min(worth_it_s, _LONG_STAY_S))


def leave_order(stayed: bool, used: bool, ready_at: float, used_at: float) -> tuple[int, float]:
    """Who makes room first: who has no users and was used longest ago, then who has been ready longest; last who has not had
    its stay."""
    return (3 if not stayed else 2 if used else 1), ready_at if used else used_at


def times_since(before: Mapping[str, float], now_true: Iterable[str], now: float) -> dict[str, float]:
    """Since when each name has been true without a break."""
    return {name: before.get(name, now) for name in now_true}
