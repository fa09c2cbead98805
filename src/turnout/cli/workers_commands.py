"""`turnout workers`: the machines that have joined; take one out, or back in."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import typer

from turnout.cli.formatting import one_line, shorten, table
from turnout.cli.options import Common, with_common
from turnout.cli.video_view import mapping, number, text, whole

GIB = 1 << 30
DETAIL_WIDTH = 60

JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List and drain workers (needs an admin key).")
    group.command("list")(list_workers)
    group.command("drain")(drain)
    app.add_typer(group, name="workers")


@with_common
def list_workers(common: Common, as_json: JsonOption = False) -> None:
    """The workers that have joined, what they have, and what they run."""
    from turnout.cli.client import ApiClient

    with ApiClient(common.server()) as client:
        workers = client.workers()
    if as_json:
        print(json.dumps({"data": workers}))
    elif not workers:
        print("no worker has joined yet", file=sys.stderr)
    else:
        print(table(HEADINGS, [_row(worker) for worker in workers]))


@with_common
def drain(
    common: Common,
    worker_id: Annotated[str, typer.Argument(metavar="ID", help="From `turnout workers list`.")],
    undo: Annotated[bool, typer.Option("--undo", help="Take it back in.")] = False,
) -> None:
    """Give a worker nothing new; its replicas leave once they are idle."""
    from turnout.cli.client import ApiClient

    with ApiClient(common.server()) as client:
        client.set_draining(worker_id, not undo)
    print(f"{worker_id} {'takes work again' if undo else 'is draining'}")


HEADINGS = ("ID", "NAME", "URL", "STATE", "GPUS", "MEMORY", "REPLICAS")


def _row(worker: Mapping[str, Any]) -> Sequence[str]:
    machine = mapping(worker.get("machine"))
    return (
        *(one_line(str(worker.get(column) or "")) for column in ("id", "name", "url")),
        _state(worker),
        _gpus(_mappings(machine.get("gpus"))) if machine else "",
        _free(machine.get("free_memory_bytes"), machine.get("memory_bytes")) if machine else "",
        "; ".join(_replica(replica) for replica in _mappings(worker.get("replicas"))),
    )


def _state(worker: Mapping[str, Any]) -> str:
    if worker.get("draining") is True:
        return "draining"
    return "takes work" if worker.get("machine") else "silent"


def _gpus(gpus: Sequence[Mapping[str, Any]]) -> str:
    if not gpus:
        return "none"
    free, total = (
        sum(number(gpu.get(field)) or 0 for gpu in gpus) for field in ("free_bytes", "total_bytes")
    )
    return f"{len(gpus)}, {_free(free, total)}"


def _free(free: object, total: object) -> str:
    return f"{(number(free) or 0) / GIB:.1f} of {(number(total) or 0) / GIB:.1f} GiB free"


def _replica(replica: Mapping[str, Any]) -> str:
    """`r-1 ready, 3 busy`, `r-2 failed: no such weights`."""
    words = one_line(f"{replica.get('id')} {replica.get('phase')}")
    if busy := whole(replica.get("busy")):
        words += f", {busy} busy"
    if detail := text(replica.get("detail")):
        words += f": {shorten(detail, DETAIL_WIDTH)}"
    return words


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [mapping(item) for item in cast("list[object]", value)] if isinstance(value, list) else []
