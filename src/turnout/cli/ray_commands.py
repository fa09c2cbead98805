"""`turnout ray status` and `turnout down --ray`: what Turnout runs on a Ray cluster, and its end."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import table
from turnout.cli.options import Common, JsonOption, with_config
from turnout.domain.errors import Misconfigured

if TYPE_CHECKING:
    from turnout.domain.slots import GangReport, RankReport
    from turnout.wiring.on_ray.cluster_status import ClusterStatus

AddressOption = Annotated[
    str,
    typer.Option("--address", envvar="RAY_ADDRESS", help="The cluster; auto finds the one on this machine."),
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Turnout on a Ray cluster.")
    group.command("status")(status)
    group.command("serve", hidden=True)(with_config(serve))
    app.add_typer(group, name="ray")


def status(address: AddressOption = "auto", as_json: JsonOption = False) -> None:
    """Nodes, deployments, gangs and their ranks."""
    connected(address)
    from turnout.wiring.on_ray.cluster_status import cluster_status

    found = cluster_status()
    if as_json:
        print(json.dumps(asdict(found), default=sorted))
    else:
        print(describe(found))


def remove_from_cluster(address: str) -> None:
    connected(address)
    from turnout.wiring.on_ray.serve_app import take_down

    take_down()
    print("Turnout has left the cluster. What was queued or running goes on at the next `turnout up --ray`.")


def serve(common: Common, address: Annotated[str | None, typer.Option("--address")] = None) -> None:
    """Deploy on a cluster and stay until SIGTERM (`turnout up --ray` starts this)."""
    import asyncio

    from turnout.observe import start_logging

    need_ray()
    from turnout.wiring.on_ray.serve_app import run_on_ray

    config = common.load().config
    start_logging(config.log_level, role="ray")
    asyncio.run(run_on_ray(config, address))


def need_ray() -> None:
    try:
        import ray.serve  # pyright: ignore[reportUnusedImport]  # noqa: F401
    except ImportError as err:
        raise Misconfigured(f"this needs the ray extra: pip install 'turnout[ray]' ({err})") from err


def connected(address: str) -> None:
    need_ray()
    from turnout.wiring.on_ray.serve_app import connect

    connect(address)


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
    parts = [
        table(("NODE", "ID", "CPU", "GPU"), nodes),
        manager,
        table(("DEPLOYMENT", "STATE"), deployments) if deployments else "nothing is deployed",
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
