"""`turnout workers`: the machines that have joined; take one out, or back in, or end it, or undo what it booked."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import done, note_of_reach, one_line, shorten, table
from turnout.cli.options import Common, JsonOption, seconds, with_common

if TYPE_CHECKING:
    from turnout.fleet.machine_rules import Gpu
    from turnout.fleet.worker_messages import ReplicaShown, WorkerShown

GIB = 1 << 30
DETAIL_WIDTH = 60
HEADINGS = ("ID", "NAME", "URL", "STATE", "GPUS", "MEMORY", "REPLICAS")


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Add, list, drain and evict workers (needs an admin key).")
    group.command("add")(add)
    group.command("list")(list_workers)
    group.command("drain")(drain)
    group.command("evict")(evict)
    group.command("take-back")(take_back)
    app.add_typer(group, name="workers")


@with_common
def add(
    common: Common,
    expires: Annotated[
        str, typer.Option("--expires", help="How long the code works: 15m, 2h; a day at most.")
    ] = "15m",
    as_json: JsonOption = False,
) -> None:
    """Print the one command that lets a machine join, with a one-time code.

    It works from behind a NAT. The address in it is the service's public_url, or the one that this command calls.
    """
    from turnout.cli.server_answers import read
    from turnout.fleet.join_code_json import JoinCodeShown

    body = {"expires_in_s": seconds(expires, "--expires"), "url": common.server().url}
    made = read(JoinCodeShown, common.call("POST", "workers", "join-codes", body=body))
    print(done(as_json, made.command, command=made.command, url=made.url, expires_at=made.expires_at))
    if note := note_of_reach(made.url, "for other machines"):
        print(note, file=sys.stderr)


@with_common
def list_workers(common: Common, as_json: JsonOption = False) -> None:
    """The workers that have joined, what they have, and what they run."""
    from turnout.cli.server_answers import read
    from turnout.fleet.worker_messages import WorkerList

    answer = common.call("GET", "workers")
    if as_json:
        print(json.dumps({"data": answer.get("data")}))
    elif not (workers := read(WorkerList, answer).data):
        print("no worker has joined yet", file=sys.stderr)
    else:
        print(table(HEADINGS, [_row(worker) for worker in workers]))


@with_common
def drain(
    common: Common,
    worker_id: Annotated[str, typer.Argument(metavar="ID", help="From `turnout workers list`.")],
    undo: Annotated[bool, typer.Option("--undo", help="Take it back in.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give a worker nothing new; its replicas leave once they are idle."""
    common.call("POST", "workers", worker_id, "drain", body={"draining": not undo})
    words = f"{worker_id} {'takes work again' if undo else 'is draining'}"
    print(done(as_json, words, id=worker_id, draining=not undo))


@with_common
def evict(
    common: Common,
    worker_id: Annotated[str, typer.Argument(metavar="ID", help="From `turnout workers list`.")],
    revoke_key: Annotated[
        bool,
        typer.Option(
            "--revoke-key", help="Revoke its key, too. This evicts all workers that joined with it."
        ),
    ] = False,
    take_back: Annotated[
        bool, typer.Option("--take-back", help="Take back the GPU time that it booked, as `take-back` does.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """End a worker at once: it gets no more requests, and what it was doing goes to others.

    Whoever holds its key can join again, unless the key is revoked.
    """
    taken: dict[str, float] = {}
    with common.client() as client:
        gone = client.call("DELETE", "workers", worker_id)
        key, revoked = str(gone.get("key") or ""), gone.get("key_revoked") is True
        if revoke_key and key and not revoked:
            client.call("DELETE", "v1", "keys", key)
            revoked = True
        if take_back:
            taken = _taken_back(client.call("DELETE", "workers", worker_id, "gpu-time"))
    words = f"{worker_id} is evicted" + (f"\nkey {key} is revoked" if revoked else "")
    words += f"\n{_taken(taken)}" if take_back else ""
    facts = {"gpu_seconds_taken_back": taken} if take_back else {}
    print(done(as_json, words, id=worker_id, key=key or None, key_revoked=revoked, **facts))
    if key and not revoked:
        print(f"its key {key} is still valid; to revoke it: turnout keys revoke {key}", file=sys.stderr)


@with_common
def take_back(
    common: Common,
    worker_id: Annotated[
        str, typer.Argument(metavar="ID", help="Of a worker, also of one that was evicted.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Take back the GPU time that a worker booked in this month and the last: nobody pays for it any more."""
    taken = _taken_back(common.call("DELETE", "workers", worker_id, "gpu-time"))
    print(done(as_json, _taken(taken), id=worker_id, gpu_seconds_taken_back=taken))


def _taken_back(answer: Mapping[str, Any]) -> dict[str, float]:
    from turnout.cli.server_answers import read
    from turnout.fleet.worker_messages import GpuTimeTakenBack

    return read(GpuTimeTakenBack, answer).seconds


def _taken(seconds: dict[str, float]) -> str:
    by_model = ", ".join(f"{one_line(model) or 'free'} {n:.0f} s" for model, n in sorted(seconds.items()))
    return f"GPU time taken back: {by_model or 'none was booked'}"


def _row(worker: "WorkerShown") -> Sequence[str]:
    machine = worker.machine
    state = _state(worker)
    return (
        one_line(worker.id),
        one_line(worker.name),
        one_line(worker.url),
        state,
        _gpus(machine.gpus) if machine else "",
        _free(machine.free_memory_bytes, machine.memory_bytes) if machine else "",
        "; ".join(_replica(replica) for replica in worker.replicas),
    )


def _state(worker: "WorkerShown") -> str:
    """`takes work`, `draining`, `silent for 140 s`."""
    if worker.machine is None:
        return "silent"
    if worker.heard_ago_s is not None and worker.standing != "alive":
        return f"silent for {worker.heard_ago_s:.0f} s"
    return "draining" if worker.draining else "takes work"


def _gpus(gpus: "Sequence[Gpu]") -> str:
    if not gpus:
        return "none"
    return f"{len(gpus)}, {_free(sum(g.free_bytes for g in gpus), sum(g.total_bytes for g in gpus))}"


def _free(free_bytes: int, total_bytes: int) -> str:
    return f"{free_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB free"


def _replica(replica: "ReplicaShown") -> str:
    """`qwen ready, 3 busy`, `r-2 failed: no such weights`."""
    words = one_line(f"{replica.model or replica.id} {replica.phase}")
    if replica.busy:
        words += f", {replica.busy} busy"
    if replica.detail:
        words += f": {shorten(replica.detail, DETAIL_WIDTH)}"
    return words
