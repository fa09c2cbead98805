"""The scripts of the fleet: a worker's heartbeat, and what the manager publishes."""

from collections.abc import Sequence
from typing import Literal

from turnout.fleet.machine_rules import WorkerId
from turnout.store.connection import RedisConnection
from turnout.store.scripts import Script

_store_heartbeat = Script("fleet/store_heartbeat")


async def store_heartbeat(
    link: RedisConnection, *, worker: WorkerId, doc: bytes, heartbeat_ms: int, worker_ms: int
) -> int | None:
    """Stores a heartbeat and returns its number, which grows; None when the worker is unknown."""
    seq = await _store_heartbeat.run(
        link, worker=worker, doc=doc, heartbeat_ms=heartbeat_ms, worker_ms=worker_ms
    )
    return int(seq) or None


Operation = Literal["hset", "hincrby", "expire", "hdel", "del", "orders", "tell", "book"]


Write = tuple[Operation, str, str | int, str | bytes | int]
"""An operation with the key, field and value that it takes; an empty one where it takes none. `book` takes a worker, a day with
what GPU time is of, and ms."""


_publish = Script("fleet/publish")


async def publish(
    link: RedisConnection, *, right: str, owner: str, orders_ms: int, writes: Sequence[Write]
) -> bool:
    """Carries out all writes, or none and returns False when `owner` does not hold the right."""
    rest = [one for write in writes for one in write]
    return bool(await _publish.run(link, rest, right=right, owner=owner, orders_ms=orders_ms))
