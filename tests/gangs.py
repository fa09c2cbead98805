"""The service's door for gangs in a test: a gateway on real stores, behind uvicorn, and calls with good tokens."""

import secrets
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conftest import Stores
from tests.gateways import Gateway, running, serving
from turnout.gang.gang_api import GangApi
from turnout.tasks.gang_tokens import GangRight
from turnout.tasks.task_rules import GangId, TenantId
from turnout.tenants.key_rules import Role, mint


class Door:
    """Opens gangs by a worker key, as whoever starts gangs does."""

    def __init__(self, gateway: Gateway, base: str, key: str) -> None:
        self.gateway = gateway
        self.base = base
        self.key = key
        self.apis: list[GangApi] = []

    def token(self, gang: str, model: str = "wan-tiny-t2v") -> str:
        return self.gateway.inside.videos.gangs.tokens.token(GangRight(self.key, GangId(gang), model))

    def api(self, gang: str, model: str = "wan-tiny-t2v") -> GangApi:
        self.apis.append(GangApi(self.base, self.token(gang, model)))
        return self.apis[-1]


@asynccontextmanager
async def open_door(stores: Stores, **changes: Any) -> AsyncIterator[Door]:
    key, _ = mint(
        secrets.token_hex(6), secrets.token_urlsafe(16), TenantId("default"), Role.WORKER, "test", time.time()
    )
    await stores.tenants.keys.add(key)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            running(stores, Path(folder), **changes) as gateway,
            serving(gateway.app, gateway.inside.chat.relay.protocol) as base,
        ):
            door = Door(gateway, base, key.id)
            try:
                yield door
            finally:
                for api in door.apis:
                    await api.aclose()
