"""The Serve application: for each video model as many deployments as it may have gangs, and one that keeps the
manager."""

import asyncio
import contextlib
import hashlib
import json
import os
from typing import Any, cast

from ray import serve as _serve
from ray.exceptions import RayActorError, RayError
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from turnout import __version__
from turnout.config import Config, dump
from turnout.domain.errors import Misconfigured, Unavailable
from turnout.domain.slots import deployment_name
from turnout.domain.video_model import Model
from turnout.launch.ray.bundles import LEADER, gang_bundles
from turnout.observe import get_log, start_logging
from turnout.wiring.on_ray.gang_replica import VideoGenerator
from turnout.wiring.on_ray.manager_actor import NAMESPACE, end_manager, ensure_manager, find_manager, ray
from turnout.wiring.on_ray.queue_cache import dump_model
from turnout.wiring.signals import on_stop

serve = cast("Any", _serve)
log = get_log()

APP = "turnout"  # as we deploy it; whoever uses `serve run` or `serve deploy` may call it otherwise
MANAGER = "Manager"
_ANSWER_S = 20.0
_OBJECT_STORE_BYTES = 200 * 2**20
_HEALTH = {"health_check_period_s": 5.0, "health_check_timeout_s": 30.0}


class ManagerKeeper:
    """Makes the detached manager and answers for its health, so that `serve status` tells of it."""

    async def __init__(self, config: Config, digest: str, *gangs: Any) -> None:
        start_logging(config.log_level, role="keeper")
        self._config = config
        self._digest = digest
        await asyncio.to_thread(ensure_manager, config, digest)

    async def check_health(self) -> None:
        manager = find_manager() or await asyncio.to_thread(ensure_manager, self._config, self._digest)
        async with asyncio.timeout(20):
            await manager.health.remote()


def build_app(config: Config, *, ingress: bool = False) -> Any:
    """What `serve.run` takes. With `ingress` the gateway is part of it, behind Serve's own HTTP server."""
    gangs = [
        deploy_gang(config, model, slot)
        for model in config.models_on_ray
        for slot in range(model.max_replicas)
    ]
    keeper = serve.deployment(ManagerKeeper).options(
        name=MANAGER, num_replicas=1, ray_actor_options={"num_cpus": 0}, **_HEALTH
    )
    managed = keeper.bind(config, digest_of(config), *gangs)
    return entrypoint(config, managed) if ingress else managed


def entrypoint(config: Config, manager: Any) -> Any:
    """The gateway's deployment."""
    from turnout.wiring.on_ray.ingress import APIEntrypoint

    return (
        serve.deployment(serve.ingress()(APIEntrypoint))
        .options(
            name=APIEntrypoint.__name__,
            num_replicas=1,
            max_ongoing_requests=1000,
            ray_actor_options={"num_cpus": 0},
            **_HEALTH,
        )
        .bind(config, manager)
    )


def deploy_gang(config: Config, model: Model, slot: int) -> Any:
    """One slot's deployment: none or one replica, which is one gang."""
    return (
        serve.deployment(VideoGenerator)
        .options(
            name=deployment_name(model.name, slot),
            autoscaling_config=AutoscalingConfig(
                min_replicas=0,
                initial_replicas=0,
                max_replicas=1,
                upscale_delay_s=1.0,  # for an idle gang to take it first
                downscale_delay_s=0.0,  # the policy knows how long it was idle
                downscale_to_zero_delay_s=0.0,
                policy=AutoscalingPolicy(
                    policy_function="turnout.wiring.on_ray.scaling_policy:GangPolicy",
                    policy_kwargs={"model": dump_model(model), "slot": slot},
                ),
            ),
            ray_actor_options={"num_cpus": LEADER["CPU"]},
            placement_group_bundles=[dict(bundle) for bundle in gang_bundles(model)],
            placement_group_strategy=config.ray_strategy,
            graceful_shutdown_timeout_s=config.drain_s + 15.0,
            graceful_shutdown_wait_loop_s=0.2,
            **_HEALTH,
        )
        .bind(config, model.name, slot)
    )


def digest_of(config: Config) -> str:
    """The same for the same configuration and version of Turnout."""
    return hashlib.sha256(json.dumps([__version__, dump(config)], sort_keys=True).encode()).hexdigest()[:16]


def connect(address: str | None) -> None:
    """Joins the cluster at `address`, or starts one on this machine that ends with this process, and whose processes' logs
    come out here. Raises Unavailable when there is none, or it does not take our token."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what Ray would tell others of us
    if address is not None:
        try:
            # Logs stay on their nodes: one process cannot print those of all ranks.
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="warning")
        except (ConnectionError, RuntimeError, ValueError, RayError) as err:
            raise Unavailable(f"no Ray cluster at {address}: {str(err).strip().splitlines()[0]}") from err
        return
    # Nothing large goes through Ray's object store.
    ray.init(
        address="local",
        namespace=NAMESPACE,
        include_dashboard=False,
        logging_level="warning",
        object_store_memory=_OBJECT_STORE_BYTES,
    )


def refuse_unreachable_redis(config: Config) -> None:
    """The embedded Redis has a socket on this machine only."""
    here = ray.util.get_node_ip_address()
    elsewhere = {n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"]} - {here, "127.0.0.1"}
    if elsewhere and (config.redis_url or "unix:").startswith("unix:"):
        raise Misconfigured(
            f"nodes on other machines ({', '.join(sorted(elsewhere))}) cannot reach the embedded Redis: "
            "give a --redis-url that all of them reach"
        )


async def run_on_ray(config: Config, address: str | None) -> None:
    """Deploys, stays until SIGTERM, then drains and removes what it deployed."""
    await asyncio.to_thread(connect, address)
    stopping = asyncio.Event()
    on_stop(stopping.set)  # after Ray, which sets a handler of its own
    refuse_unreachable_redis(config)
    await asyncio.to_thread(run_app, config)
    log.info("deployed on ray", nodes=sum(node["Alive"] for node in ray.nodes()))
    await stopping.wait()
    await asyncio.to_thread(take_down)
    ray.shutdown()


def run_app(config: Config) -> None:
    """Deploys on the cluster that this process is connected to; returns when all that should run does. What runs
    already is left as it is: Serve would replace every gang, though nothing has changed."""
    if runs_already(config):
        log.info("taken over on ray")
        return
    serve.start(proxy_location="Disabled")
    serve.run(build_app(config), name=APP, route_prefix=None)


def runs_already(config: Config) -> bool:
    """Whether somebody has deployed this very configuration, all of which is well."""
    app, manager = our_applications().get(APP), find_manager()
    if app is None or manager is None or str(app.status.value) != "RUNNING":
        return False
    try:
        return ray.get(manager.health.remote(), timeout=_ANSWER_S).config_digest == digest_of(config)
    except RayError:
        return False


def our_applications() -> dict[str, Any]:
    """Those that were built here, whatever they are called; none when Serve is on its way out."""
    try:
        applications = serve.status().applications
    except RayActorError:
        return {}
    return {name: app for name, app in applications.items() if name == APP or MANAGER in app.deployments}


def take_down() -> None:
    """Drains the gangs, then removes all that `run_app` brought; Serve itself, too, unless others use it."""
    for name in our_applications():
        serve.delete(name)
    end_manager()
    with contextlib.suppress(RayActorError):  # somebody else has just shut it down
        if not serve.status().applications:
            serve.shutdown()
