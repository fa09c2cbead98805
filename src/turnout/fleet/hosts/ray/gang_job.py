"""Runs one gang as actors on the Ray cluster that this process belongs to: the entry point of a RayJob."""

import asyncio
from functools import partial

from turnout.fleet.hosts.ray.bundle_rules import gang_bundles, rank_bundle
from turnout.fleet.hosts.ray.cluster_service import connect
from turnout.fleet.hosts.ray.gang_replica import be_rank
from turnout.fleet.hosts.ray.manager_actor import ray
from turnout.fleet.hosts.ray.ray_identity import of_gangs
from turnout.fleet.hosts.ray.ray_ranks import RankTerms, RayRanks
from turnout.gang.exit_codes import ExitCode
from turnout.gang.own_gpu import own_gpu_name
from turnout.gang.rank_place import RankDuties
from turnout.gang.supervisor import GangSupervisor, gang_orders
from turnout.run.config import Config
from turnout.run.gang_service import open_api
from turnout.run.signals import on_stop


async def run_gang_job(config: Config, duties: RankDuties, address: str | None) -> int:
    """The verdict on its task, if it is for one. `address` None starts a cluster here."""
    await asyncio.to_thread(connect, address)
    config = of_gangs(config)
    model = config.model(duties.model)
    group = ray.util.placement_group([dict(b) for b in gang_bundles(model)], strategy=config.ray.ray_strategy)
    terms = RankTerms(model.gang.ranks, rank_bundle(model), config.ray.ray_place_s)
    ranks = RayRanks(duties.gang, group, terms, partial(be_rank, config, duties), own_gpu_name)
    orders = gang_orders(config.gangs, model, duties.gang)
    assert duties.service is not None
    async with open_api(duties.service) as api:
        supervisor = GangSupervisor(orders, ranks, api)
        on_stop(supervisor.stop)  # after Ray, which sets a handler of its own
        try:
            code = await supervisor.run()
        finally:
            ranks.close()
            await asyncio.to_thread(ray.util.remove_placement_group, group)
    return code if duties.once else ExitCode.COMPLETED
