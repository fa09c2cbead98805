"""A copy of what lasts in Redis (keys, models, tasks and their events, usage) as one private file, and back.

The file has one JSON object a line: a head, then one for each key, as the server dumps it, then an end with their count.
A server restores what one of its own kind, as old or older, has dumped.
"""

import asyncio
import base64
import json
import os
import secrets
import time
from collections.abc import AsyncGenerator, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.errors import Conflict, InvalidRequest, Unavailable
from turnout.store.connection import RedisConnection, translated

_FORMAT = 1
_AT_ONCE = 100
_BATCH_BYTES = 4 * 2**20
_WATCH_S = 2.0
_OF_A_FRESH_SERVICE = frozenset(
    ("keys", "audit", "url_secret", "webhook_secret", "fleet:models", "fleet:declared")
)
_COUNTED = ("allowance:", "history:", "usage:gpu:")
# What processes write again by themselves, or what is only good for a moment.
_PASSING = (
    "canary",
    "restored",
    "chat:",
    "closed:",
    "fleet:",
    "gangs",
    "code:",
    "loops:",
    "mutex:",
    "oidc:",
    "rate:",
    "session",
)


@dataclass(frozen=True, slots=True)
class Copied:
    """`changed` says that the service wrote while it was copied, so that some task may be half in it."""

    keys: int
    changed: bool


async def back_up(link: RedisConnection, path: Path) -> Copied:
    """Writes the file, which only its owner can read; an older one is replaced when the new one is whole."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    before, count = await _last_write(link), 0
    try:
        with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            head = {"turnout_backup": _FORMAT, "at": time.time()}
            file.write(json.dumps(head) + "\n")
            async for name, ends_at_ms, dump in _dumps(link):
                own = link.keys.without_prefix(name)
                line = {"key": own, "ends_at_ms": ends_at_ms, "dump": base64.b64encode(dump).decode()}
                file.write(json.dumps(line) + "\n")
                count += 1
            file.write(json.dumps({"end": count}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return Copied(count, await _last_write(link) != before)


async def restore(link: RedisConnection, path: Path, *, over: bool, own_keys: Collection[str] = ()) -> int:
    """Writes all that the file holds, and returns how many keys that were. Nothing is written if the file is not whole, or,
    unless `over`, if there is data that somebody made: what is there goes first, but for the API keys that a running service made
    for itself (they are named in `own_keys`). Gateways and managers notice, and begin anew."""
    for _ in _lines(path):
        pass  # is it whole?
    there = [name async for name in _lasting(link) if name != link.keys.genesis()]
    own = await _own_keys(link, own_keys)
    if there and not over and not await _is_fresh(link, there, own):
        raise Conflict(
            f"there is data already ({len(there)} keys): --force deletes it first", code="not_empty"
        )
    client, restored = link.client, 0
    for start in range(0, len(there), _AT_ONCE):
        async with translated():
            await client.delete(*there[start : start + _AT_ONCE])
    pending: list[tuple[Any, ...]] = []
    pending_bytes, now_ms = 0, time.time() * 1000
    for line in _lines(path):
        ends_at_ms, dump = line["ends_at_ms"], base64.b64decode(line["dump"])
        if 0 <= ends_at_ms <= now_ms:
            continue  # its time is over
        pending.append((link.keys.with_prefix(line["key"]), max(0, ends_at_ms), dump))
        pending_bytes += len(dump)
        restored += 1
        if len(pending) >= _AT_ONCE or pending_bytes > _BATCH_BYTES:
            await _write(client, pending)
            pending, pending_bytes = [], 0
    await _write(client, pending)
    async with translated():
        if own:
            await client.hset(link.keys.keys(), mapping=own)
        await client.set(link.keys.restored(), secrets.token_hex(16))
    return restored


async def wait_restored(link: RedisConnection) -> None:
    """Returns when the data was replaced by a copy. What this process knows is of the data before it: it should begin anew."""
    known: bytes | None = None
    began = False
    while True:
        try:
            async with translated():
                found = await link.client.get(link.keys.restored())
            if began and found is not None and found != known:
                return
            began, known = True, found or known
        except Unavailable:
            pass  # others tell
        await asyncio.sleep(_WATCH_S)


async def _own_keys(link: RedisConnection, names: Collection[str]) -> dict[bytes, bytes]:
    async with translated():
        found: dict[bytes, bytes] = await link.client.hgetall(link.keys.keys())
    return {key: doc for key, doc in found.items() if _name_of(doc) in names}


def _name_of(doc: bytes) -> object:
    try:
        found: Any = json.loads(doc)
        return found["name"]
    except (ValueError, KeyError, TypeError):
        return None


async def _is_fresh(link: RedisConnection, there: Collection[str], own: Collection[bytes]) -> bool:
    """Whether all that is there was written by a service that nobody has used: its own keys, the models of its configuration, what
    it counts and notes by itself."""
    names = {link.keys.without_prefix(name) for name in there}
    if any(name not in _OF_A_FRESH_SERVICE and not name.startswith(_COUNTED) for name in names):
        return False
    async with translated():
        keys = await link.client.hkeys(link.keys.keys())
        models = await link.client.hkeys(link.keys.models())
        declared = await link.client.smembers(link.keys.declared())
    return set(keys) <= set(own) and set(models) <= set(declared)


async def _write(client: Any, records: list[tuple[Any, ...]]) -> None:
    async with translated(60.0), client.pipeline(transaction=False) as pipe:
        for name, ends_at_ms, dump in records:
            # A scan may name a key twice, and a running service may have begun to write.
            pipe.restore(name, ends_at_ms, dump, replace=True, absttl=bool(ends_at_ms))
        await pipe.execute()


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; raises InvalidRequest if it is not one of ours, or not whole."""
    count, ended = 0, False
    with path.open() as file:
        for number, text in enumerate(file):
            try:
                line: Any = json.loads(text)
                if number == 0:
                    if line["turnout_backup"] != _FORMAT:
                        raise InvalidRequest(f"{path} has format {line['turnout_backup']}, not {_FORMAT}")
                elif "end" in line:
                    ended = line["end"] == count
                else:
                    count += 1
                    yield {
                        "key": str(line["key"]),
                        "ends_at_ms": int(line["ends_at_ms"]),
                        "dump": line["dump"],
                    }
            except (ValueError, KeyError, TypeError) as err:
                raise InvalidRequest(
                    f"{path} is not a copy made by `turnout backup` (line {number + 1})"
                ) from err
    if not ended:
        raise InvalidRequest(f"{path} is not whole: its end is missing")


def _lasts(name: str) -> bool:
    """Whether a key holds what cannot be made again: keys, models, tasks and usage, but not who runs where right now."""
    return name in ("fleet:models", "fleet:declared") or not name.startswith(_PASSING)


async def _lasting(link: RedisConnection) -> AsyncGenerator[str]:
    """The names of all keys that a copy holds."""
    cursor = 0
    while True:
        async with translated():
            cursor, names = await link.client.scan(cursor, match=link.keys.pattern(), count=1000)
        for name in names:
            if _lasts(link.keys.without_prefix(found := name.decode())):
                yield found
        if not cursor:
            return


async def _dumps(link: RedisConnection) -> AsyncGenerator[tuple[str, int, bytes]]:
    """Name, end in ms (-1: none) and dump of each; those that went meanwhile are left out."""
    async for name in _lasting(link):
        async with translated(), link.client.pipeline(transaction=True) as pipe:
            pipe.pexpiretime(name)
            pipe.dump(name)
            ends_at_ms, dump = await pipe.execute()
        if dump is not None:
            yield name, int(ends_at_ms), dump


async def _last_write(link: RedisConnection) -> tuple[object, ...]:
    """Changes with every event of a task."""
    async with translated():
        newest = await link.client.xrevrange(link.keys.all_events(), count=1)
        return (newest[0][0] if newest else None, await link.client.get(link.keys.places()))
