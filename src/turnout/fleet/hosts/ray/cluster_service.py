"""A service's life on a Ray cluster: deployed, looked after as long as `turnout up` runs, and removed."""

import asyncio
import contextlib
import os
import socket
import time
from typing import Any, cast

from ray import serve as _serve
from ray.exceptions import RayActorError, RayError

from turnout.errors import Misconfigured, Unavailable
from turnout.fleet.hosts.ray.cluster_reach import gateway_url, is_kept_here, refuse_local_gateway
from turnout.fleet.hosts.ray.manager_actor import end_manager, end_tokens, find_manager, ray, terms_of
from turnout.fleet.hosts.ray.ray_identity import OURS, namespace_of, service_of
from turnout.fleet.hosts.ray.serve_app import build_app, our_applications
from turnout.processes.local_parts import DISMISSED
from turnout.run.config import Config
from turnout.run.signals import on_stop
from turnout.telemetry.log import drain_log, get_log

serve = cast("Any", _serve)
log = get_log()

_ANSWER_S = 20.0
_LOOK_EVERY_S = 2.0
_SILENT_S = 60.0  # for Ray to say what is deployed; a head that is started again takes a while
_OBJECT_STORE_BYTES = 200 * 2**20


def connect(address: str | None, dashboard: bool = False) -> str | None:
    """Joins the cluster at `address`, or starts one on this machine that ends with this process, and whose processes' logs
    come out here. Its `dashboard` is what `serve status` asks; it takes 0.4 GB. Returns where that is, if there is one. Raises
    Unavailable when there is no cluster, or it does not take our token."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what Ray would tell others of us
    if address is not None:
        try:
            # Logs stay on their nodes: one process cannot print those of all ranks.
            joined = ray.init(address=address, namespace=OURS, log_to_driver=False, logging_level="warning")
        except (ConnectionError, RuntimeError, ValueError, RayError) as err:
            raise Unavailable(f"no Ray cluster at {address}: {str(err).strip().splitlines()[0]}") from err
        return _dashboard_of(joined)
    # Nothing large goes through Ray's object store.
    started = ray.init(
        address="local",
        namespace=OURS,
        include_dashboard=dashboard,
        dashboard_host="127.0.0.1",
        logging_level="warning",
        object_store_memory=_OBJECT_STORE_BYTES,
    )
    return _dashboard_of(started)


def _dashboard_of(cluster: Any) -> str | None:
    return f"http://{cluster.dashboard_url}" if cluster.dashboard_url else None


async def run_on_ray(config: Config, address: str | None, local_gateway: str) -> int:
    """Deploys, and deploys again what somebody or something removed; until SIGTERM, or `turnout down --ray` elsewhere.
    Then it drains and removes what it deployed. Returns an exit code."""
    dashboard = await asyncio.to_thread(connect, address, config.ray.ray_dashboard)
    stopping = asyncio.Event()
    on_stop(stopping.set)  # after Ray, which sets a handler of its own
    await asyncio.to_thread(run_app, config, local_gateway)
    log.info("deployed on ray", nodes=sum(node["Alive"] for node in ray.nodes()), dashboard=dashboard)
    dismissed = False
    while not (dismissed or stopping.is_set()):
        if not await _is_there(config):
            log.error("deployment gone from ray, deployed again", app=namespace_of(config))
            await asyncio.to_thread(run_app, config, local_gateway)
        dismissed = await asyncio.to_thread(_attend, namespace_of(config))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_S):
                await stopping.wait()
    if dismissed:
        log.warning("stopping: `turnout down --ray` was called elsewhere")
    await asyncio.to_thread(take_down, namespace_of(config))
    ray.shutdown()
    return DISMISSED if dismissed else 0


async def _is_there(config: Config) -> bool:
    """Ends this process when Ray does not answer: who starts it again connects anew."""
    try:
        async with asyncio.timeout(_SILENT_S):
            found = await asyncio.to_thread(our_applications, namespace_of(config))
    except (TimeoutError, RayError, ConnectionError, RuntimeError) as err:
        log.error("ray does not answer", error=f"{type(err).__name__}: {err}"[:300])
        drain_log()
        os._exit(1)  # a thread may hang in Ray
    app = found.get(namespace_of(config))
    return app is not None and app["status"] != "DELETING"


def _attend(namespace: str) -> bool:
    """Tells the manager who looks after the deployment; true when it is to leave."""
    manager = find_manager(namespace)
    if manager is None:
        return False  # its keeper makes another
    try:
        return ray.get(manager.attend.remote(f"{socket.gethostname()}, pid {os.getpid()}"), timeout=_ANSWER_S)
    except RayError:
        return False


def run_app(config: Config, local_gateway: str) -> None:
    """Deploys on the cluster that this process is connected to; returns when all that should run does. What has its
    version already is left as it is. `local_gateway` is where this machine's gateway is reached from here."""
    _refuse_another_service(config)
    here = ray.util.get_node_ip_address()
    elsewhere = {n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"]} - {here, "127.0.0.1"}
    url = gateway_url(config, local_gateway, here)
    refuse_local_gateway(url, elsewhere)
    serve.start(proxy_location="Disabled")
    machine = here if is_kept_here(config) else None
    app = build_app(config.with_settings(ray_gateway_url=url), machine=machine)
    serve.run(app, name=namespace_of(config), route_prefix=None)


def _refuse_another_service(config: Config) -> None:
    """Two services with the same prefix would replace each other."""
    namespace = namespace_of(config)
    apps, manager = our_applications(namespace), find_manager(namespace)
    if not apps:
        return
    hint = "give this one another redis_prefix, or remove that one (turnout down --ray)"
    if namespace not in apps:
        raise Misconfigured(f"the Serve application {next(iter(apps))} serves this prefix already: {hint}")
    with contextlib.suppress(RayError):  # who cannot tell is replaced
        terms = terms_of(manager) if manager else None
        if terms and terms.service != service_of(config):
            raise Misconfigured(
                f"a service with the prefix {config.redis.redis_prefix} and another Redis runs on this cluster: {hint}"
            )


def dismiss(namespace: str, within_s: float) -> str | None:
    """Asks the `turnout up` that looks after the deployment to drain and leave, and waits for it; who it was."""
    who: str | None = None
    deadline = time.monotonic() + within_s
    while (manager := find_manager(namespace)) is not None and time.monotonic() < deadline:
        with contextlib.suppress(RayError):  # it is being ended
            who = ray.get(manager.dismiss.remote(), timeout=_ANSWER_S) or who
        if who is None:
            break
        time.sleep(0.5)
    return who


def take_down(namespace: str) -> None:
    """Drains the gangs, then removes all that `run_app` brought; Serve itself, too, unless others use it."""
    with contextlib.suppress(RayActorError):  # somebody else has just shut Serve down
        for name in our_applications(namespace):
            serve.delete(name)
    end_tokens(namespace)
    end_manager(namespace)
    with contextlib.suppress(RayActorError):
        if not serve.status().applications:
            serve.shutdown()
