"""One gang on Ray: a Serve replica that supervises rank actors in its own placement group."""

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from turnout.errors import Misconfigured, Unavailable
from turnout.fleet.gang_reports import GangReportStore
from turnout.fleet.gang_rules import GangReport, RankReport
from turnout.fleet.hosts.ray.bundle_rules import rank_bundle
from turnout.fleet.hosts.ray.interfaces import socket_variables
from turnout.fleet.hosts.ray.rank_actor import RankAssignment
from turnout.fleet.hosts.ray.ray_ranks import RankTerms, RayRanks
from turnout.fleet.hosts.ray.shared_storage import refuse_rank
from turnout.fleet.ray_rules import gang_prefix
from turnout.gang.own_gpu import own_gpu_name
from turnout.gang.rank_place import RankDuties, RankPlace
from turnout.gang.supervisor import GangSupervisor, gang_orders
from turnout.run.config import Config
from turnout.run.open_stores import open_stores
from turnout.tasks.task_rules import GangId
from turnout.telemetry.log import get_log, start_logging

log = get_log()

_TELL_EVERY_S = 1.0
_MAX_WORDS = 300


class VideoGenerator:
    """One gang. Serve starts it where its placement group is, asks whether it is well, and stops it in peace."""

    async def __init__(self, config: Config, model: str, slot: int, objects_at: str | None) -> None:
        from ray.util import get_current_placement_group

        group: Any = cast("Any", get_current_placement_group)()
        if group is None:
            raise Misconfigured("a gang on Ray needs a placement group")
        self.gang = GangId(f"{gang_prefix(model, slot)}{secrets.token_hex(3)}")
        start_logging(config.telemetry.log_level, role="gang", gang=self.gang, model=model)
        found = config.model(model)
        self._config = config
        self._slot = slot
        self._since = time.time()
        self._ready_at: float | None = None
        self._ranks = RayRanks(
            self.gang,
            group,
            RankTerms(found.gang.ranks, rank_bundle(found), config.ray.ray_place_s),
            partial(be_rank, config, RankDuties(model, self.gang), objects_at),
            own_gpu_name,
        )
        self._orders = gang_orders(config.gangs, found, self.gang)
        self._supervisor: GangSupervisor | None = None
        self._running = asyncio.get_running_loop().create_task(self._run(), name=self.gang)

    async def _run(self) -> None:
        async with open_stores(self._config) as stores, asyncio.TaskGroup() as group:
            telling = group.create_task(self._tell(stores.fleet.gangs), name=f"{self.gang} tells")
            self._supervisor = GangSupervisor(self._orders, self._ranks, stores.queue, self._loaded)
            last_word = ""
            try:
                await self._supervisor.run()
            except Unavailable as err:
                last_word = str(err)[:_MAX_WORDS]
                raise
            finally:
                self._ranks.close()
                telling.cancel()
                with contextlib.suppress(Unavailable):
                    if last_word:  # it is forgotten soon; until then the manager learns why tasks wait
                        await stores.fleet.gangs.put(replace(self.report(), trouble=last_word))
                    else:
                        await stores.fleet.gangs.remove(self.gang)

    def _loaded(self) -> None:
        self._ready_at = self._ready_at or time.time()

    async def _tell(self, reports: GangReportStore) -> None:
        while True:
            with contextlib.suppress(Unavailable):
                await reports.put(self.report())
            await asyncio.sleep(_TELL_EVERY_S)

    def report(self) -> GangReport:
        ranks = tuple(
            RankReport(number, rank.place.node, rank.place.address, rank.pid, rank.place.gpu)
            if rank.place and rank.returncode is None
            else RankReport(number)
            for number, rank in enumerate(self._ranks.ranks)
        )
        return GangReport(
            self.gang,
            self._orders.model,
            self._slot,
            self._since,
            time.time(),
            self._ranks.formation,
            ranks,
            self._ready_at,
            self._supervisor.trouble[:_MAX_WORDS] if self._supervisor else "",
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
        try:
            async with asyncio.timeout(self._config.gangs.drain_s + 5):
                with contextlib.suppress(Exception):  # it is leaving; why it was unwell stands in its log
                    await self._running
        except TimeoutError:
            log.warning("gang did not leave in time")


def be_rank(
    config: Config,
    duties: RankDuties,
    objects_at: str | None,
    assignment: RankAssignment,
    heartbeat_fd: int,
    on_drain: Callable[[Callable[[], None]], None],
) -> int:
    """The whole life of a rank, on a thread of its actor."""
    refuse_rank(objects_at, assignment.address)
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
