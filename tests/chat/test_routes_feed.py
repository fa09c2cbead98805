"""What a gateway tells chat clients from the routes that a manager published in a real registry."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.conftest import Stores, wait_until
from tests.pace import patient

from turnout.background import BackgroundLoops
from turnout.chat.routes_feed import RoutesFeed
from turnout.chat.switchboard import Switchboard
from turnout.errors import InvalidRequest, NotFound
from turnout.fleet.family_rules import FAMILIES
from turnout.fleet.fleet_rules import Rules
from turnout.fleet.model_rules import EngineKind, Model, Runner, VideoPart
from turnout.run.run_manager import fleet_manager
from turnout.tasks.task_rules import TenantId
from turnout.worker.tunnel.gateway_end import GatewayTunnels

VIDEO = Model("wan", EngineKind.VIDEO, "w", video=VideoPart(FAMILIES["wan-tiny-t2v"]), concurrency=1)


@asynccontextmanager
async def running_gateway(stores: Stores) -> AsyncIterator[Switchboard]:
    board = Switchboard(time.monotonic)
    feed = RoutesFeed(stores.fleet.routes, stores.fleet.models, stores.fleet.workers, board, GatewayTunnels())
    async with BackgroundLoops({"routes": feed.run}).running():
        yield board


@asynccontextmanager
async def running_manager(stores: Stores, gangs_by: Runner = Runner.WORKER) -> AsyncIterator[None]:
    manager = fleet_manager(stores, "m1", Rules(), gangs_by)
    async with BackgroundLoops({"fleet": manager.run}).running():
        yield
    await manager.leave()


async def test_with_all_models_on_ray_an_unknown_one_is_not_found(stores: Stores) -> None:
    await stores.fleet.models.put(VIDEO)
    async with running_gateway(stores) as board, running_manager(stores, Runner.RAY):
        with pytest.raises(NotFound):
            await asyncio.wait_for(board.wait("unknown", TenantId("acme"), None), patient(10))
        with pytest.raises(InvalidRequest, match="/v1/videos"):
            board.take("wan", None)


async def test_until_a_manager_has_looked_requests_wait(stores: Stores) -> None:
    await stores.fleet.models.put(VIDEO)
    async with running_gateway(stores) as board:
        asking = asyncio.create_task(board.wait("unknown", TenantId("acme"), None))
        await wait_until(lambda: "unknown" in board.demand(), "the request to wait")
        assert not asking.done()
        asking.cancel()
