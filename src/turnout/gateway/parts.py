"""What the gateway is made of; wiring chooses the adapters behind the ports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends
from starlette.requests import HTTPConnection

from turnout.config import Config
from turnout.ports import (
    Blobs,
    Fetcher,
    Gangs,
    KeyStore,
    Mutex,
    Queue,
    Quotas,
    Registry,
    Shortcuts,
    TaskLog,
    Tunnels,
    UsageLog,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """`new_id` gives unique, time-sortable letters and digits; `new_seed` a seed for those who gave none. `fetcher`
    goes to addresses that users name, `prober` to those that workers say they have."""

    config: Config
    tasks: TaskLog
    queue: Queue
    keys: KeyStore
    blobs: Blobs
    mutex: Mutex
    registry: Registry
    quotas: Quotas
    usage: UsageLog
    gangs: Gangs
    fetcher: Fetcher
    prober: Fetcher
    tunnels: Tunnels
    shortcuts: Shortcuts
    now: Callable[[], float]
    new_id: Callable[[], str]
    new_seed: Callable[[], int]


async def parts_of(conn: HTTPConnection) -> Parts:
    return cast(Parts, conn.app.state.parts)


PartsDep = Annotated[Parts, Depends(parts_of)]
