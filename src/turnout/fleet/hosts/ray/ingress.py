"""The gateway as a Serve deployment, behind Serve's own HTTP server. Chat goes through the same relay as in the stand-alone
gateway, on a socket of this process.

What changes often comes by itself: routes and events are pushed through Redis and kept here. The manager is asked by Ray
calls, for what operators want to know; never for a request that a user waits for.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ray.exceptions import RayError

from turnout.fleet.gang_reports import GangReports
from turnout.fleet.gang_rules import GangReport
from turnout.fleet.hosts.ray.manager_actor import find_manager
from turnout.fleet.hosts.ray.ray_identity import namespace_of
from turnout.fleet.hosts.ray.relay_socket import RelaySocket
from turnout.gateway.app import create_app
from turnout.gateway.gateway import Gateway
from turnout.run.client_tls import client_tls
from turnout.run.config import Config
from turnout.run.open_stores import find_url_signer, new_stores
from turnout.run.run_gateway import gateway_on, relay_settings
from turnout.run.run_manager import declare
from turnout.store.outbound import WORKERS, Outbound
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log, start_logging

log = get_log()

_ANSWER_S = 2.0  # shorter than /ready waits


class GangsByRay:
    """The gangs that live, as the manager's actor knows them; while it is away, as they tell of themselves."""

    def __init__(self, namespace: str, board: GangReports) -> None:
        self._namespace = namespace
        self._board = board
        self._manager: Any = None

    async def all(self) -> dict[GangId, GangReport]:
        try:
            async with asyncio.timeout(_ANSWER_S):
                self._manager = self._manager or await asyncio.to_thread(find_manager, self._namespace)
                if self._manager is not None:
                    return await self._manager.gangs.remote()
        except (RayError, TimeoutError) as err:
            log.warning("manager did not answer", error=type(err).__name__)
            self._manager = None
        return await self._board.all()


class APIEntrypoint:
    """Waits for the manager's deployment. Its app is made where it runs, by `__serve_build_asgi_app__`."""

    async def __init__(self, config: Config, reread: Callable[[], Config] | None, manager: Any) -> None:
        start_logging(config.telemetry.log_level, role="gateway")
        self._config = config = config if reread is None else await asyncio.to_thread(reread)
        self._stores = new_stores(config)
        self._prober = Outbound(True, reach=WORKERS, tls=client_tls(config.outbound.ca_file))
        self._fetcher = Outbound(config.outbound.allow_private_urls)
        self._gateway: Gateway | None = None
        self._chat: RelaySocket | None = None
        await declare(
            config, self._stores.fleet.models
        )  # the manager does so, too, but perhaps later than the first request
        self._urls = await find_url_signer(config, self._stores)

    def __serve_build_asgi_app__(self) -> Any:
        gangs = GangsByRay(namespace_of(self._config), self._stores.fleet.gangs)
        relay = relay_settings(self._config.gateway)
        # The app answers for these.
        relay = replace(relay, client=replace(relay.client, cors_origins=frozenset()))
        self._gateway = gateway = gateway_on(
            self._config, self._stores, self._fetcher, self._prober, relay, self._urls, gangs
        )
        self._chat = RelaySocket(gateway.chat.relay, relay)
        gateway.background.add("relay socket", self._chat.run)
        app = create_app(gateway)
        app.include_router(self._chat.router)
        return app

    async def __del__(self) -> None:
        """Serve awaits this before it ends the replica."""
        if self._gateway is not None:
            self._gateway.videos.stop()
            self._gateway.chat.relay.close()
        with contextlib.suppress(Exception):  # the process ends next anyway
            if self._gateway is not None and self._chat is not None:
                await self._gateway.chat.usage.flush()
                await self._chat.aclose()
            await self._fetcher.aclose()
            await self._prober.aclose()
            await self._stores.close()
