"""Which replica takes a request: the one that has seen the same prefix before, unless it has too much to do. Pure.

Requests that begin alike go to the same replica, because its prefix cache saves work (rendezvous hashing: a replica that
comes or goes moves only its own requests). A replica above `BOUND` times the mean load is passed over, so that a popular
prefix cannot overload one while others idle.
"""

import hashlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import ceil

from turnout.fleet.replica_rules import ReplicaId
from turnout.fleet.route_rules import Route

BOUND = 1.25
_PREFIX_BYTES = 512


def affinity_of(body: bytes) -> bytes:
    """The prefix by which requests are grouped; the model's name and the system prompt come first in a body."""
    return body[:_PREFIX_BYTES]


def choose(
    routes: Sequence[Route],
    loads: Mapping[ReplicaId, int],
    concurrency: int,
    affinity: bytes | None,
    avoid: AbstractSet[ReplicaId] = frozenset(),
    tried: AbstractSet[ReplicaId] = frozenset(),
) -> Route | None:
    """The replica for one more request, or None when none has room. One in `avoid` is used only when nothing else is
    left, one in `tried` never."""
    if len(routes) == 1:
        only = routes[0]
        free = only.usable and loads.get(only.replica, 0) < concurrency and only.replica not in tried
        return only if free else None
    usable = [
        r for r in routes if r.usable and loads.get(r.replica, 0) < concurrency and r.replica not in tried
    ]
    open_routes = [r for r in usable if r.replica not in avoid] or usable
    if not open_routes:
        return None
    if affinity is None:
        return min(open_routes, key=lambda r: (loads.get(r.replica, 0), r.replica))
    total = sum(loads.get(r.replica, 0) for r in open_routes) + 1
    limit = ceil(BOUND * total / len(open_routes))
    below = [r for r in open_routes if loads.get(r.replica, 0) < limit]
    key = hashlib.blake2b(affinity, digest_size=8).digest()
    return max(below, key=lambda r: _weight(key, r.replica))


def _weight(key: bytes, replica: ReplicaId) -> bytes:
    return hashlib.blake2b(replica.encode(), digest_size=8, key=key).digest()
