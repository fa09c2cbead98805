"""One gang on Ray: a Serve replica that supervises rank actors in its own placement group."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from turnout.errors import Misconfigured, Unauthorized, Unavailable
from turnout.fleet.gang_rules import GangReport, RankReport
from turnout.fleet.hosts.ray.bundle_rules import rank_bundle
from turnout.fleet.hosts.ray.interfaces import socket_variables
from turnout.fleet.hosts.ray.manager_link import ManagerLink
from turnout.fleet.hosts.ray.rank_actor import RankAssignment
from turnout.fleet.hosts.ray.ray_ranks import RankTerms, RayRanks
from turnout.fleet.hosts.ray.serve_address import serve_url
from turnout.fleet.ray_rules import gang_prefix
from turnout.gang.gang_api import GangApi, ServiceAccess
from turnout.gang.own_gpu import own_gpu_name
from turnout.gang.rank_place import RankDuties, RankPlace
from turnout.gang.supervisor import GangSupervisor, gang_orders
from turnout.run.config import Config
from turnout.run.gang_service import open_api
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log, start_logging

log = get_log()

_TELL_EVERY_S = 1.0
_RIGHT_EVERY_S = 10.0
_MAX_WORDS = 300


class VideoGenerator:
    """One gang. Serve starts it where its placement group is, asks whether it is well, and stops it in peace."""

    async def __init__(self, config: Config, namespace: str, model: str, slot: int) -> None:
        from ray.util import get_current_placement_group

        group: Any = cast("Any", get_current_placement_group)()
        if group is None:
            raise Misconfigured("a gang on Ray needs a placement group")
        self.gang = GangId(f"{gang_prefix(model, slot)}{secrets.token_hex(3)}")
        start_logging(config.telemetry.log_level, role="gang", gang=self.gang, model=model)
        found = config.model(model)
        self._manager = ManagerLink(namespace)
        self._service = await self._find_service(config, model)
        self._config = config
        self._model = model
        self._slot = slot
        self._since = time.time()
        self._ready_at: float | None = None
        self._ranks = RayRanks(
            self.gang,
            group,
            RankTerms(found.gang.ranks, rank_bundle(found), config.ray.ray_place_s),
            partial(be_rank, config, RankDuties(model, self.gang, self._service)),
            own_gpu_name,
        )
        self._orders = gang_orders(config.gangs, found, self.gang)
        self._supervisor: GangSupervisor | None = None
        self._trouble = ""  # before there is a supervisor, or after
        self._running = asyncio.get_running_loop().create_task(self._run(), name=self.gang)

    async def _run(self) -> None:
        async with open_api(self._service) as api, asyncio.TaskGroup() as group:
            loops = [
                group.create_task(self._tell(), name=f"{self.gang} tells"),
                group.create_task(self._keep_right(api), name=f"right of {self.gang}"),
            ]
            try:
                await self._wait_gateway(api)
                self._supervisor = GangSupervisor(self._orders, self._ranks, api, self._loaded)
                await self._supervisor.run()
            except (Unavailable, Unauthorized) as err:
                self._trouble = str(err)[:_MAX_WORDS]
                raise
            finally:
                self._ranks.close()
                for loop in loops:
                    loop.cancel()
                with contextlib.suppress(Unavailable, Unauthorized):
                    await api.leave()
                # Of one that is in trouble the word stays for a while: the manager learns why tasks wait.
                await self._manager.tell(self.gang, self.report() if self._trouble else None)

    def _loaded(self) -> None:
        self._ready_at = self._ready_at or time.time()

    async def _find_service(self, config: Config, model: str) -> ServiceAccess:
        url = config.ray.ray_gateway_url or await asyncio.to_thread(serve_url)
        token = await self._manager.gang_token(model, self.gang)
        ca_file = config.outbound.ca_file
        return ServiceAccess(url, token, str(ca_file) if ca_file else None)

    async def _wait_gateway(self, api: GangApi) -> None:
        """No rank is started, and no task claimed, where the gang could not say what becomes of it."""
        while True:
            try:
                await api.held()
            except Unavailable as err:
                self._trouble = f"no gateway answers the gang at {self._service.url}: {err}"[:_MAX_WORDS]
                log.warning("no gateway answered, trying again", error=str(err))
            else:
                self._trouble = ""
                return
            await asyncio.sleep(_TELL_EVERY_S)

    async def _keep_right(self, api: GangApi) -> None:
        """Raises Unauthorized once its token has ended: Serve replaces the gang, and the next one gets another."""
        while True:
            await asyncio.sleep(_RIGHT_EVERY_S)
            with contextlib.suppress(Unavailable):
                await api.held()

    async def _tell(self) -> None:
        while True:
            await self._manager.tell(self.gang, self.report())
            await asyncio.sleep(_TELL_EVERY_S)

    def report(self) -> GangReport:
        ranks = tuple(
            RankReport(number, rank.place.node, rank.place.address, rank.pid, rank.place.gpu)
            if rank.place and rank.returncode is None
            else RankReport(number)
            for number, rank in enumerate(self._ranks.ranks)
        )
        trouble = self._trouble or (self._supervisor.trouble[:_MAX_WORDS] if self._supervisor else "")
        return GangReport(
            self.gang,
            self._model,
            self._slot,
            self._since,
            time.time(),
            self._ranks.formation,
            ranks,
            self._ready_at,
            trouble,
        )

    async def check_health(self) -> None:
        """Serve replaces a gang that is not well, placement group and all."""
        if self._running.done():
            await self._running
            raise RuntimeError("the gang has left")

    async def __del__(self) -> None:
        """Serve awaits this before it ends the replica: what is being rendered is checkpointed and put back."""
        if self._supervisor is not None:
            self._supervisor.stop()
        else:
            self._running.cancel()
        try:
            async with asyncio.timeout(self._config.gangs.drain_s + 5):
                with contextlib.suppress(
                    Exception, asyncio.CancelledError
                ):  # it is leaving; why it was unwell stands in its log
                    await self._running
        except TimeoutError:
            log.warning("gang did not leave in time")


def be_rank(
    config: Config,
    duties: RankDuties,
    assignment: RankAssignment,
    heartbeat_fd: int,
    on_drain: Callable[[Callable[[], None]], None],
) -> int:
    """The whole life of a rank, on a thread of its actor."""
    os.environ.update(socket_variables(os.environ, config.ray.ray_interface, assignment.address))
    from turnout.run.run_rank import serve_rank

    start_logging(
        config.telemetry.log_level,
        role="rank",
        gang=duties.gang,
        rank=assignment.rank,
        node=assignment.node,
        model=duties.model,
    )
    # Ray shows an actor the one GPU that it was given, so that one is number 0 for every rank.
    place = RankPlace(assignment.rank, assignment.ranks, 0, assignment.rendezvous, assignment.listening)
    return serve_rank(config, duties, place, heartbeat_fd, on_drain=on_drain)
