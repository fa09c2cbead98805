"""`turnout status` and `turnout down`: how the service stands, on one screen, and its end."""

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import duration, one_line, share_of, table
from turnout.cli.options import Common, JsonOption, with_common, with_config
from turnout.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnout.cli.client import ApiClient

_BEYOND_DRAIN_S = 60.0  # what `turnout up` gives its slowest part


def register(app: typer.Typer) -> None:
    app.command("status")(status)
    app.command("down")(with_config(down))


@with_common
def status(common: Common, as_json: JsonOption = False) -> None:
    """How the service stands: its parts, models, workers and queues. Exit code 1 if it is not ready."""
    with common.client() as client:
        found = _gather(client)
        server = client.server
    if as_json:
        print(json.dumps({"url": server.url, **found}))
    else:
        pid = f", pid {server.pid}" if server.pid else ""
        print(f"Turnout {found['version']} at {server.url}{pid}\n")
        print("\n\n".join(_sections(found)))
    if found["ready"].get("status") != "ready":
        raise typer.Exit(1)


def down(
    common: Common,
    ray: Annotated[bool, typer.Option("--ray", help="Remove what runs on a Ray cluster instead.")] = False,
    address: Annotated[
        str | None, typer.Option("--address", help="The cluster (with this, --ray is not needed).")
    ] = None,
) -> None:
    """Drain and stop the service that `turnout up` runs here. What is queued or running goes on at the next start.

    With --ray: drain the gangs on a Ray cluster, and remove all that Turnout runs there.
    """
    if ray or address:
        from turnout.cli.ray_commands import remove_from_cluster

        return remove_from_cluster(common.load().config, address or "auto")
    from turnout.cli.background_service import stop_service

    config = common.load().config
    if stop_service(config.state_dir, config.gangs.drain_s + _BEYOND_DRAIN_S):
        print("Turnout has stopped. What was queued or running goes on at the next `turnout up`.")
    else:
        print(f"no Turnout runs on {config.state_dir}", file=sys.stderr)
    return None


def _gather(client: "ApiClient") -> dict[str, Any]:
    """What an admin's key alone may see is missing for others."""
    found: dict[str, Any] = {
        "version": client.call("GET", "health").get("version", "?"),
        "ready": client.ready(),
        "models": client.call("GET", "v1", "models").get("data", []),
    }
    with suppress(Forbidden):
        found |= {
            "workers": client.call("GET", "workers").get("data", []),
            "queues": client.call("GET", "v1", "queues").get("data", []),
        }
    return found


def _sections(found: "Mapping[str, Any]") -> "Sequence[str]":
    parts = found["ready"].get("parts", {})
    wrong = [f"{one_line(name)}: {one_line(str(said))}" for name, said in parts.items() if said != "ok"]
    well = ", ".join(one_line(name) for name, said in parts.items() if said == "ok")
    sections = ["\n".join([*(f"NOT READY  {line}" for line in wrong), f"well       {well}"])]
    queues = found.get("queues", [])
    waiting: dict[str, list[Any]] = {}
    for row in queues:
        waiting.setdefault(row["model"], []).append(row)
    models = [
        (
            one_line(m["id"]),
            one_line(m.get("kind", "")),
            _queue(waiting.get(m["id"], [])),
            one_line(m["status"]) + share_of(m.get("version_of"), m.get("share")),
        )
        for m in found["models"]
    ]
    sections.append(table(("MODEL", "KIND", "QUEUE", "STATUS"), models) if models else "no models")
    if "workers" in found:
        workers = [(one_line(w["name"]), _gpus(w.get("machine")), _worker_state(w)) for w in found["workers"]]
        sections.append(table(("WORKER", "GPUS", "STATE"), workers) if workers else "no worker has joined")
    return sections


def _queue(rows: "Sequence[Mapping[str, Any]]") -> str:
    waiting, running = (sum(int(row[name]) for row in rows) for name in ("waiting", "running"))
    if not waiting and not running:
        return "-"
    oldest = max(float(row["oldest_s"]) for row in rows)
    return f"{waiting} waiting, {running} running, oldest {duration(oldest)}"


def _worker_state(worker: "Mapping[str, Any]") -> str:
    if worker.get("standing") != "alive":
        return f"silent for {duration(worker.get('heard_ago_s') or 0)}"
    replicas = len(worker.get("replicas", []))
    state = "draining" if worker.get("draining") else "takes work"
    return f"{state}, {replicas} {'replica' if replicas == 1 else 'replicas'}"


def _gpus(machine: "Mapping[str, Any] | None") -> str:
    return str(len(machine["gpus"])) if machine else "?"
