"""Runs the supervisor of a gang whose ranks are child processes."""

from dataclasses import replace
from pathlib import Path

from turnout.config import Config
from turnout.domain.serving import ServedModel
from turnout.domain.tasks import GangId
from turnout.gang.supervisor import GangOrders, GangSupervisor
from turnout.wiring.forked_ranks import ForkedRanks
from turnout.wiring.signals import on_stop
from turnout.wiring.stores import open_stores


async def run_gang(
    config: Config,
    model_name: str,
    gang: GangId,
    *,
    once: bool,
    declared: ServedModel | None = None,
    ready_file: Path | None = None,
) -> None:
    """`declared` is the model as it was ordered, which may differ from what is configured here."""
    if declared is not None:
        others = (model for model in config.served if model.name != declared.name)
        config = replace(config, served=(*others, declared))
    model = config.model(model_name)
    orders = GangOrders(model.name, gang, model.ranks, config.stall_s, config.step_timeout_s, config.drain_s)
    async with open_stores(config) as stores:
        supervisor = GangSupervisor(
            orders,
            ForkedRanks(config, model, gang, once=once),
            stores.queue,
            lambda: ready_file.touch() if ready_file else None,
        )
        on_stop(supervisor.stop)
        await supervisor.run()
