"""Runs a manager: housekeeping and the loop that decides where models live."""

import asyncio
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from functools import partial

from turnout.background import BackgroundLoops, Work
from turnout.errors import Unavailable
from turnout.fleet.fleet_rules import Rules
from turnout.fleet.hosts.kubernetes.launching import JobHost
from turnout.fleet.manager_loop import FleetManager
from turnout.fleet.model_rules import Runner
from turnout.fleet.model_store import ModelStore
from turnout.people.belongings import erase_guests
from turnout.run.config import Config
from turnout.run.open_stores import find_url_signer, find_webhook_secret, open_connection, open_stores
from turnout.run.signals import on_stop
from turnout.store.data_copy import wait_restored
from turnout.store.outbound import Outbound
from turnout.stores import Stores
from turnout.tasks.housekeeping import Housekeeper, make_way
from turnout.tasks.webhooks import WebhookSender
from turnout.telemetry.log import get_log
from turnout.tenants.audit_rules import NoticeGroup
from turnout.tenants.budget_accounts import BudgetAccounts
from turnout.tenants.gpu_division import GpuDivider
from turnout.tenants.notices import NoticePost, Notices

_REPORT_S = 2.0


async def run_manager(config: Config) -> None:
    """The manager as a process of its own, until SIGTERM."""
    stopping = asyncio.Event()
    on_stop(stopping.set)
    await manage(config, stopping, more={"restored": partial(_end_when_restored, config, stopping)})


async def _end_when_restored(config: Config, stopping: asyncio.Event) -> None:
    """As gateways do: whoever runs it starts it again."""
    async with open_connection(config) as link:
        await wait_restored(link)
    get_log().warning("manager ends to begin anew", reason="the data was restored from a copy")
    stopping.set()
    await asyncio.Event().wait()  # until it is cancelled: a loop that returns would be started again


async def manage(
    config: Config,
    stopping: asyncio.Event,
    gangs_by: Runner = Runner.WORKER,
    reasons: Callable[[], Mapping[str, str]] = dict,
    more: Mapping[str, Work] | None = None,
) -> None:
    """`gangs_by`: who runs the gangs of models that do not say it; `reasons`: why those models have none. `more`: loops that
    run beside the manager's own."""
    async with (
        open_stores(config) as stores,
        aclosing(Outbound(config.outbound.allow_private_urls)) as fetcher,
    ):
        await declare(config, stores.fleet.models)
        manager = await _housekeeper(config, stores, fetcher)
        name = f"m-{secrets.token_hex(4)}"  # new for each process: replicas are named after it
        jobs = JobHost(config.fleet.kubernetes_jobs, config.gangs.drain_s, stores, name)
        fleet = fleet_manager(
            stores, name, config.fleet.rules, gangs_by, lambda: {**reasons(), **jobs.reasons}
        )
        loops = BackgroundLoops({**manager.loops(), "fleet": fleet.run, **(more or {})})
        loops.add("loop report", partial(_report_loops, loops, stores, manager.id))
        loops.add("declaration", partial(_keep_declared, config, stores.fleet.models))
        if jobs.settings is not None:
            loops.add("jobs", jobs.run)
        async with loops.running():
            await stopping.wait()
        await fleet.leave()
        await manager.leave()


async def _housekeeper(config: Config, stores: Stores, fetcher: Outbound) -> Housekeeper:
    webhooks = WebhookSender(
        stores.outbox,
        fetcher,
        stores.webhook_secrets,
        await find_webhook_secret(config, stores.webhook_secrets),
        config.tasks.retention_s,
        await find_url_signer(config, stores),
        time.time,
        random.random,
        stores.spans,
        config.access.site.name,
    )
    access = config.access
    post = NoticePost(access.notice_urls, stores.outbox, time.time)
    notices = Notices(post, access.notice_groups, stores.link, stores.tenants.audit, stores.fleet.status)
    budgets = BudgetAccounts(
        stores.tenants.usage,
        stores.tenants.budgets,
        config.costs.budgets,
        config.costs.gpu_prices,
        config.costs.currency,
        stores.outbox,
        time.time,
        post if NoticeGroup.BUDGETS in access.notice_groups else None,
    )
    divider = GpuDivider(stores.link, stores.fleet.models, time.time)

    async def settle() -> None:
        await divider.look()
        await budgets.look()

    return Housekeeper(
        f"{socket.gethostname()}-{os.getpid()}",
        stores.fleet.models,
        stores.fleet.status,
        stores.tasks,
        stores.queue,
        stores.backlog,
        stores.blobs,
        stores.mutex,
        webhooks.send_due,
        config.tasks.lease_s,
        config.tasks.retention_s,
        (
            ("budgets", settle, 10.0),
            (
                "way",
                lambda: make_way(stores.backlog, stores.queue, config.tasks.limits),
                0.25 if access.guests else 1.0,
            ),
            ("notices", notices.look, 10.0),
            ("guests", lambda: erase_guests(stores, time.time()), 60.0),
        ),
        stores.fleet.demand.gateways,
    )


async def _report_loops(loops: BackgroundLoops, stores: Stores, owner: str) -> None:
    """Lets gateways say in /ready how the loops of the manager at work are."""
    while True:
        try:
            if await stores.mutex.holder("manager") == owner:
                await stores.data.report_loops(loops.states())
        except Unavailable as err:
            get_log().warning("states of background loops not reported", error=str(err))
        await asyncio.sleep(_REPORT_S)


async def _keep_declared(config: Config, models: ModelStore) -> None:
    """When Redis has lost its data, the models of the configuration are declared again."""
    while True:
        await asyncio.sleep(_REPORT_S)
        try:
            if not await models.was_declared():
                get_log().warning("models declared again", reason="the data was lost")
                await declare(config, models)
        except Unavailable as err:
            get_log().warning("declared models not checked", error=str(err))


def fleet_manager(
    stores: Stores,
    name: str,
    rules: Rules,
    gangs_by: Runner = Runner.WORKER,
    reasons: Callable[[], Mapping[str, str]] = dict,
) -> FleetManager:
    return FleetManager(
        name,
        stores.fleet.manager_state,
        stores.fleet.models,
        stores.fleet.workers,
        stores.fleet.demand,
        stores.backlog,
        stores.mutex,
        stores.fleet.gangs,
        stores.queue,
        rules,
        gangs_by,
        reasons,
    )


async def declare(config: Config, models: ModelStore) -> None:
    """Makes the registered models follow the configuration, waiting for Redis if need be."""
    while True:
        try:
            for name in await models.declare(config.models):
                get_log().info("model removed", model=name, by="configuration")
            return
        except Unavailable:
            await asyncio.sleep(0.5)
