"""Reads records, and goes on when one cannot be read: it is skipped, and a copy is set aside under `dead` for operators.

One record must never stop what reads the others. A record of a newer version is skipped, not set aside, and logged once.
"""

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from turnout.store.connection import RedisConnection, translated
from turnout.store.record_kinds import NewerRecord, RecordKind
from turnout.telemetry.log import get_log

T = TypeVar("T")
N = TypeVar("N", bound=str)
log = get_log()

_MAX_DEAD = 1_000
_MAX_BYTES = 64 * 1024
_AT_ONCE = 100  # records that are read before others may run


async def read_all(
    link: RedisConnection, kind: RecordKind[T], found: Mapping[N, bytes | None], *, called: str = ""
) -> dict[N, T]:
    """Those that are there and can be read. `called` is how operators find those that cannot, if not by the kind's own name."""
    records: dict[N, T] = {}
    for place, (name, data) in enumerate(found.items(), 1):
        if place % _AT_ONCE == 0:
            await asyncio.sleep(0)
        record = await read_one(link, kind, name, data, called=called)
        if record is not None:
            records[name] = record
    return records


async def read_one(
    link: RedisConnection, kind: RecordKind[T], name: str, data: bytes | None, *, called: str = ""
) -> T | None:
    called = called or kind.name
    if data is None:
        return None
    try:
        return kind.load(data)
    except NewerRecord as err:
        if link.first_time(f"{called} {err}"):
            log.warning("record of a newer version was skipped", kind=called, name=name, error=str(err))
    except (ValueError, RecursionError) as err:  # pydantic's and Unicode's errors are ValueErrors
        await set_aside(link, called, name, data, err)
    return None


async def set_aside(link: RedisConnection, kind: str, name: str, data: bytes, err: Exception) -> None:
    """Keeps a copy; the first one of each record, and a bounded number of them."""
    async with translated():
        if await link.client.hlen(link.keys.dead()) >= _MAX_DEAD:
            return
        new = await link.client.hsetnx(link.keys.dead(), f"{kind} {name}", data[:_MAX_BYTES])
    if new:
        problem = str(err).partition("\n")[0]
        log.error("record cannot be read, and was set aside", kind=kind, name=name, error=problem)


def text(data: bytes) -> str:
    """A name; bytes that are no text are shown as such."""
    return data.decode(errors="backslashreplace")


def number(data: bytes | None, default: int = 0) -> int:
    """A count; what is none counts as the default."""
    try:
        return default if data is None else int(data)
    except ValueError:
        return default
