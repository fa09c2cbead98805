"""`turnout ray status` and `turnout down --ray`: what Turnout runs on a Ray cluster, and its end."""

import json
import socket
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import one_line, table
from turnout.cli.options import Common, JsonOption, with_config
from turnout.errors import Misconfigured, Unavailable
from turnout.extras import RAY

if TYPE_CHECKING:
    from turnout.fleet.gang_rules import GangReport, RankReport
    from turnout.fleet.hosts.ray.cluster_status import ClusterStatus
    from turnout.run.config import Config

_CLUSTER_ANSWERS_S = 10.0
_BEYOND_DRAIN_S = 60.0  # what `turnout up` gives its part on Ray

AddressOption = Annotated[
    str,
    typer.Option("--address", envvar="RAY_ADDRESS", help="The cluster; auto finds the one on this machine."),
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Turnout on a Ray cluster.")
    group.command("status")(with_config(status))
    group.command("app")(with_config(print_app))
    group.command("serve", hidden=True)(with_config(serve))
    app.add_typer(group, name="ray")


def status(common: Common, address: AddressOption = "auto", as_json: JsonOption = False) -> None:
    """Nodes, deployments, gangs and their ranks."""
    config = common.load().config
    dashboard = connected(address)
    from turnout.fleet.hosts.ray.cluster_status import cluster_status

    found = cluster_status(config)
    if as_json:
        print(json.dumps({**asdict(found), "dashboard": dashboard}, default=sorted))
    else:
        print(describe(found))
        if dashboard is not None:
            print(f"\ndashboard: {dashboard}")


def print_app(
    common: Common,
    ingress: Annotated[
        bool, typer.Option("--ingress", help="With the gateway, behind Serve's server.")
    ] = False,
) -> None:
    """Print the file that `serve deploy` takes, or serveConfigV2 of a RayService.

    Serve reads the configuration when this file has changed, and not when the configuration has: so it has digests of it.
    """
    import yaml

    from turnout.fleet.hosts.ray.ray_identity import app_file

    file = common.config_file or Path("turnout.yaml")
    # Serve builds the application in a directory of its own, on any node.
    told = file.absolute() if file.exists() else None
    print(yaml.safe_dump(app_file(common.load().config, told, ingress=ingress), sort_keys=False), end="")


def remove_from_cluster(config: "Config", address: str) -> None:
    connected(address)
    from turnout.fleet.hosts.ray.cluster_service import dismiss, take_down
    from turnout.fleet.hosts.ray.ray_identity import namespace_of

    who = dismiss(namespace_of(config), config.gangs.drain_s + _BEYOND_DRAIN_S)
    take_down(namespace_of(config))
    ended = f"The `turnout up` of {who} has ended. " if who else ""
    print(
        f"{ended}Turnout has left the cluster. What was queued or running goes on at the next `turnout up --ray`."
    )


def serve(
    common: Common,
    gateway: Annotated[str, typer.Option("--gateway", help="This machine's, as it is reached from here.")],
    address: Annotated[str | None, typer.Option("--address")] = None,
) -> None:
    """Deploy on a cluster and stay until SIGTERM (`turnout up --ray` starts this)."""
    import asyncio

    from turnout.telemetry.log import start_logging

    need_ray()
    from turnout.fleet.hosts.ray.cluster_service import run_on_ray

    config = common.load().config
    start_logging(config.telemetry.log_level, role="ray")
    raise typer.Exit(asyncio.run(run_on_ray(config, address, gateway)))


def need_ray() -> None:
    try:
        import ray.serve  # pyright: ignore[reportUnusedImport]  # noqa: F401
    except ImportError as err:
        raise Misconfigured(f"this needs Ray: {RAY} ({err})") from err


def need_cluster(address: str) -> None:
    """That somebody listens at HOST:PORT: Ray itself would try for a minute, and meanwhile the service is up without gangs."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        return  # `auto`, and what else Ray knows how to find
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CLUSTER_ANSWERS_S).close()
    except OSError as err:
        raise Unavailable(f"no Ray cluster at {address}: {err.strerror or err}") from err


def connected(address: str) -> str | None:
    """Where the cluster's dashboard is."""
    need_ray()
    from turnout.fleet.hosts.ray.cluster_service import connect

    return connect(address)


def describe(found: "ClusterStatus") -> str:
    addresses = {node.id: node.address for node in found.nodes}
    nodes: list[tuple[Any, ...]] = [
        (n.address, n.id[:8], *(f"{n.resources.get(k, 0):g}" for k in ("CPU", "GPU"))) for n in found.nodes
    ]
    deployments = [(name, state.lower()) for name, state in sorted(found.deployments.items())]
    gangs = [
        (g.gang, g.model, _state(found, g), " ".join(_rank(r, addresses) for r in g.ranks))
        for g in sorted(found.gangs.values(), key=lambda g: g.gang)
    ]
    queues = [(m, str(queue.waiting), str(len(queue.busy))) for m, queue in sorted(found.lines.items())]
    health = found.manager
    manager = "manager: none, or it does not answer"
    if health is not None:
        manager = (
            f"manager: up for {health.up_s:.0f} s on {addresses.get(health.node, '?')}, pid {health.pid}"
        )
        if health.attended_by:
            manager += f"; looked after by turnout up on {health.attended_by}"
    parts = [
        table(("NODE", "ID", "CPU", "GPU"), nodes),
        manager,
        table(("DEPLOYMENT", "STATE"), deployments) if deployments else "nothing is deployed",
        *(f"{name}: {one_line(message)}" for name, message in sorted(found.messages.items())),
        table(("MODEL", "WAITING", "RENDERING"), queues) if queues else "",
        table(("GANG", "MODEL", "STATE", "RANKS"), gangs) if gangs else "no gang is awake",
    ]
    return "\n\n".join(part for part in parts if part)


def _state(found: "ClusterStatus", gang: "GangReport") -> str:
    queue = found.lines.get(gang.model)
    if queue is not None and gang.slot in queue.busy:
        return "busy"
    return "idle" if gang.formed else "starting"


def _rank(rank: "RankReport", addresses: dict[str, str]) -> str:
    if not rank.pid:
        return f"{rank.number}: no place yet"
    return f"{rank.number}:{addresses.get(rank.node, rank.address)}/{rank.node[:8]}/{rank.pid}"
