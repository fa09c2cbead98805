"""The Serve application: for each video model as many deployments as it may have gangs, and one that keeps the
manager."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, cast

from ray import serve as _serve
from ray.exceptions import RayActorError, RayError
from ray.serve import context as _context
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from turnout.errors import Misconfigured
from turnout.fleet.hosts.ray.bundle_rules import LEADER, gang_bundles
from turnout.fleet.hosts.ray.gang_replica import VideoGenerator
from turnout.fleet.hosts.ray.manager_actor import ensure_manager, find_manager, terms_of
from turnout.fleet.hosts.ray.ray_identity import (
    KEEPER,
    OURS,
    gang_version,
    ingress_version,
    manager_terms,
    manager_version,
    mark_of,
    marked,
    namespace_of,
    of_gangs,
)
from turnout.fleet.model_rules import Model
from turnout.fleet.ray_rules import deployment_name
from turnout.run.config import Config
from turnout.telemetry.log import start_logging

serve, context = cast("Any", _serve), cast("Any", _context)

_ANSWER_S = 20.0
_POLICY = "turnout.fleet.hosts.ray.scaling_policy:GangPolicy"


class ManagerKeeper:
    """Makes the detached manager and answers for its health, so that `serve status` tells of it."""

    async def __init__(
        self, config: Config, reread: Callable[[], Config] | None, machine: str | None, *gangs: Any
    ) -> None:
        start_logging(config.telemetry.log_level, role="keeper")
        self._config = config if reread is None else await asyncio.to_thread(reread)
        self._reread = reread
        self._machine = machine
        self._app: str = serve.get_replica_context().app_name
        await self._ensure()

    async def reconfigure(self, user_config: Mapping[str, str]) -> None:
        """Serve calls it at the start, and when `user_config` alone has changed: then the file has changed in what gangs do
        not use. The manager is replaced, and they go on."""
        if OURS not in user_config:
            raise Misconfigured(f"user_config of {KEEPER}: `turnout ray app` prints what belongs there")
        if self._reread is not None:
            self._config = await asyncio.to_thread(self._reread)
            await self._ensure()

    async def check_health(self) -> None:
        if find_manager(namespace_of(self._config)) is None:
            await self._ensure()
        await self._tell(there=True)

    async def __del__(self) -> None:
        """Serve awaits this before it ends the replica."""
        with contextlib.suppress(RayError, TimeoutError):
            await self._tell(there=False)

    async def _ensure(self) -> None:
        await asyncio.to_thread(self._make_manager)
        await self._tell(there=True)

    def _make_manager(self) -> None:
        """Unless another application keeps one for the same service: the two would kill each other's."""
        manager = find_manager(namespace_of(self._config))
        found = terms_of(manager) if manager else None
        if found and found.app != self._app and found.app in our_applications(namespace_of(self._config)):
            raise Misconfigured(f"the Serve application {found.app} serves this redis_prefix already")
        terms = manager_terms(self._config, self._app, self._machine)
        ensure_manager(self._config, terms, self._reread)

    async def _tell(self, *, there: bool) -> None:
        manager = find_manager(namespace_of(self._config))
        if manager is not None:
            async with asyncio.timeout(_ANSWER_S):
                await manager.keep.remote(there)


def build_app(
    config: Config,
    *,
    ingress: bool = False,
    reread: Callable[[], Config] | None = None,
    machine: str | None = None,
) -> Any:
    """What `serve.run` takes. With `ingress` the gateway is part of it, behind Serve's own HTTP server.
    `reread` reads the configuration where the manager and the gateway are: then no credential is in what Serve is given, nor
    needed where that is built. `machine` is where the manager must be, if that matters."""
    gangs = [
        deploy_gang(config, model, slot)
        for model in config.models_on_ray
        for slot in range(model.scaling.max_replicas)
    ]
    keeper = serve.deployment(ManagerKeeper).options(
        name=KEEPER,
        num_replicas=1,
        ray_actor_options=_light(config.ray.ray_manager_labels),
        user_config=mark_of(config),
        **_health(config),
    )
    given = config if reread is None else of_gangs(config)
    managed = _versioned(keeper, manager_version(config)).bind(given, reread, machine, *gangs)
    return entrypoint(config, given, reread, managed) if ingress else managed


def entrypoint(config: Config, given: Config, reread: Callable[[], Config] | None, manager: Any) -> Any:
    """The gateway's deployment."""
    from turnout.fleet.hosts.ray.ingress import APIEntrypoint

    gateway = serve.deployment(serve.ingress()(APIEntrypoint)).options(
        name=APIEntrypoint.__name__,
        num_replicas=1,
        max_ongoing_requests=1000,
        ray_actor_options=_light(config.ray.ray_ingress_labels),
        **_health(config),
    )
    return _versioned(gateway, ingress_version(config)).bind(given, reread, manager)


def deploy_gang(config: Config, model: Model, slot: int) -> Any:
    """One slot's deployment: none or one replica, which is one gang."""
    gang = serve.deployment(VideoGenerator).options(
        name=deployment_name(model.name, slot),
        autoscaling_config=AutoscalingConfig(
            min_replicas=0,
            max_replicas=1,
            upscale_delay_s=1.0,  # for an idle gang to take it first
            downscale_delay_s=0.0,  # the manager knows how long it was idle
            downscale_to_zero_delay_s=0.0,
            policy=AutoscalingPolicy(
                policy_function=_POLICY,
                policy_kwargs={"namespace": namespace_of(config), "model": model.name, "slot": slot},
            ),
        ),
        ray_actor_options={"num_cpus": LEADER["CPU"]},
        placement_group_bundles=[dict(bundle) for bundle in gang_bundles(model)],
        placement_group_strategy=config.ray.ray_strategy,
        graceful_shutdown_timeout_s=config.gangs.drain_s + 15.0,
        graceful_shutdown_wait_loop_s=0.2,
        **_health(config),
    )
    version, namespace = gang_version(config, model.name), namespace_of(config)
    return _versioned(gang, version).bind(of_gangs(config), namespace, model.name, slot)


def _versioned(deployment: Any, version: str) -> Any:
    """Serve replaces a deployment whose version is another one; left to itself it gives a new one at every `serve.run`,
    and every gang would be drained because a port has changed. (`serve deploy` sets one version for all of them.)"""
    return deployment.options(version=version, _internal=True)


def _light(labels: Mapping[str, str]) -> dict[str, Any]:
    """What an actor takes that waits more than it computes, on nodes with such labels."""
    return {"num_cpus": 0, **({"label_selector": dict(labels)} if labels else {})}


def _health(config: Config) -> dict[str, float]:
    return {
        "health_check_period_s": config.ray.ray_health_period_s,
        "health_check_timeout_s": config.ray.ray_health_timeout_s,
    }


def our_applications(namespace: str) -> dict[str, dict[str, Any]]:
    """This service's, whatever they are called, as Serve tells of them; none when Serve is not there."""
    try:
        client = context._get_global_client(raise_if_no_controller_running=False)
        applications: dict[str, dict[str, Any]] = client.get_serve_details()["applications"] if client else {}
    except RayActorError:
        return {}
    return {name: app for name, app in applications.items() if marked(app) == namespace}
