"""The commands that render: one pod's ranks, or a worker's gang."""

import asyncio
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.options import Common, with_config
from turnout.cli.ray_commands import need_ray
from turnout.cli.service_commands import AliveOption, start
from turnout.cli.worker_command import FingerprintOption, PlaintextOption, TokenFileOption, read_token
from turnout.errors import Misconfigured
from turnout.extras import RENDERS

if TYPE_CHECKING:
    from turnout.run.config import Config
    from turnout.run.joining import Joining

ModelOption = Annotated[str, typer.Option("--model", help="The model to serve.")]
GangOption = Annotated[str | None, typer.Option("--gang", help="This gang's name; made up when missing.")]
OnceOption = Annotated[bool, typer.Option("--once", help="Render one task and leave with its verdict.")]
IdleExitOption = Annotated[
    float | None,
    typer.Option("--idle-exit", metavar="SECONDS", min=0, help="Leave after so long with nothing to do."),
]
DeadlineOption = Annotated[
    float | None,
    typer.Option("--deadline", metavar="SECONDS", min=0, help="Fail a task that takes longer than this."),
]
LeaveOption = Annotated[
    float | None,
    typer.Option("--leave-after", metavar="SECONDS", min=0, help="Take no task once the gang is so old."),
]
ReadyOption = Annotated[
    Path | None, typer.Option("--ready-file", help="Made once the model is loaded, for a probe.")
]

DeclaredOption = Annotated[
    str | None,
    typer.Option(
        "--declared", envvar="TURNOUT_GANG_MODEL", help="The model as ordered, in JSON.", hidden=True
    ),
]


ServiceFileOption = Annotated[
    Path | None,
    typer.Option(
        "--service-file",
        envvar="TURNOUT_GANG_SERVICE_FILE",
        help="How to reach the service, with the gang's own token; whoever starts it wrote this.",
        hidden=True,
    ),
]
JoinOption = Annotated[
    str | None, typer.Option("--join", envvar="MANAGER_URL", help="The gateway to render for.")
]


def register(app: typer.Typer) -> None:
    app.command(hidden=True)(with_config(gang))
    app.command(hidden=True)(with_config(open_gang))
    app.command(epilog=EPILOG)(with_config(rank))


EPILOG = """Examples:

  turnout rank --model wan --join URL --token-file KEY      one pod: all ranks of the gang here

  torchrun --nproc-per-node 2 --no-python turnout rank --model wan --join URL --token-file KEY

Exit codes: 0 rendered, or nothing left to do; 1 the gang broke; 2 wrong configuration; with --once 3 the task failed, 4 it
was cancelled, 5 it was given back and waits again, 6 another gang has taken it over."""


def gang(
    common: Common,
    model: ModelOption,
    gang: GangOption = None,
    once: OnceOption = False,
    ready_file: ReadyOption = None,
    alive_file: AliveOption = None,
    declared: DeclaredOption = None,
    service_file: ServiceFileOption = None,
    idle_exit: IdleExitOption = None,
    deadline: DeadlineOption = None,
    leave_after: LeaveOption = None,
    join: JoinOption = None,
    token_file: TokenFileOption = None,
    fingerprint: FingerprintOption = None,
    allow_plaintext: PlaintextOption = False,
    ray: Annotated[bool, typer.Option("--ray", help="As actors on a Ray cluster (RAY_ADDRESS).")] = False,
) -> None:
    """Run one gang of ranks on this machine (workers start these), or with --ray on a cluster (the entry point of a RayJob)."""
    from turnout.gang.rank_place import RankDuties
    from turnout.run.gang_service import join_gang, read_access
    from turnout.run.run_gang import ProbeFiles, run_gang
    from turnout.tasks.task_rules import GangId

    config = _with(start(common, "gang", {}, gang=gang, model=model), declared)
    name = GangId(gang or f"{socket.gethostname()}-{os.getpid()}")
    if service_file is not None:
        service = read_access(service_file)
    else:
        joining = _joining(join, token_file, fingerprint, allow_plaintext)
        name, service = asyncio.run(join_gang(joining, config.outbound.ca_file, model, name))
    duties = RankDuties(model, name, service, once, idle_exit, deadline, leave_after_s=leave_after)
    if ray:
        need_ray()
        from turnout.fleet.hosts.ray.gang_job import run_gang_job

        address = os.environ.get("RAY_ADDRESS") or None
        raise typer.Exit(asyncio.run(run_gang_job(config, duties, address)))
    files = ProbeFiles(ready_file, alive_file)
    raise typer.Exit(asyncio.run(run_gang(config.of_computing(), duties, files)))


def open_gang(
    common: Common,
    model: ModelOption,
    write_to: Annotated[Path, typer.Option("--write-to", help="The file for the gang's token.")],
    gang: GangOption = None,
    join: JoinOption = None,
    token_file: TokenFileOption = None,
    fingerprint: FingerprintOption = None,
    allow_plaintext: PlaintextOption = False,
) -> None:
    """Exchange a worker key for a token that is good for one gang, which `turnout rank --token-file` takes: so a pod's ranks
    never see the key."""
    from turnout.run.gang_service import join_gang
    from turnout.run.state_dir import write_private

    name = gang or socket.gethostname()
    config = start(common, "open-gang", {}, gang=name, model=model)
    joining = _joining(join, token_file, fingerprint, allow_plaintext)
    _, service = asyncio.run(join_gang(joining, config.outbound.ca_file, model, name))
    write_private(write_to, service.token)


def rank(
    common: Common,
    model: ModelOption,
    gang: GangOption = None,
    once: OnceOption = False,
    idle_exit: IdleExitOption = None,
    deadline: DeadlineOption = None,
    leave_after: LeaveOption = None,
    ready_file: ReadyOption = None,
    alive_file: AliveOption = None,
    declared: DeclaredOption = None,
    join: JoinOption = None,
    token_file: TokenFileOption = None,
    fingerprint: FingerprintOption = None,
    allow_plaintext: PlaintextOption = False,
) -> None:
    """Run a gang's ranks that belong in this pod or process, for whoever starts gangs: torchrun, Kubernetes, a script.

    torchrun places each process itself (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). A pod of a LeaderWorkerSet
    (LWS_*) or of a PyTorchJob (PET_*) gets its share of the ranks as child processes; without any of these it has all of
    them. SIGTERM, in any pod, drains: what is rendered is checkpointed and waits again for another gang.

    Rank 0 calls the gateway at --join with a worker key, or a token for this gang, and needs nothing else of the service.
    """
    from turnout.gang.rank_place import RankDuties, find_pod, gang_name, rank_place_from
    from turnout.run.forked_ranks import leave_now
    from turnout.tasks.task_rules import GangId
    from turnout.telemetry.log import drain_log

    config = _with(common.load().config, declared).of_computing()
    pod = find_pod(os.environ, config.model(model).gang.ranks)
    place = rank_place_from(os.environ if pod is None else pod.variables(0))
    name, service = GangId(gang) if gang else gang_name(os.environ, socket.gethostname()), None
    start(common, "rank", {}, gang=name, rank=place.rank, model=model)
    if place.rank == 0:
        from turnout.run.gang_service import join_gang

        joining = _joining(join, token_file, fingerprint, allow_plaintext)
        name, service = asyncio.run(join_gang(joining, config.outbound.ca_file, model, name))
    duties = RankDuties(
        model, GangId(name), service, once, idle_exit, deadline, tells=True, leave_after_s=leave_after
    )
    try:
        from turnout.run.run_rank import run_rank
    except ImportError as err:
        raise Misconfigured(f"a rank needs torch and diffusers: {RENDERS} ({err})") from err
    if pod is not None:
        from turnout.run.run_gang import ProbeFiles, run_pod

        code = asyncio.run(run_pod(config, duties, pod, ProbeFiles(ready_file, alive_file)))
    else:
        code = run_rank(config, duties, place, None)
    drain_log()
    leave_now(code)


def _joining(
    join: str | None, token_file: Path | None, fingerprint: str | None, plaintext: bool
) -> "Joining":
    """Whom a gang renders for, by what was given. Raises Misconfigured."""
    from turnout.run.joining import Joining

    if join is None:
        raise Misconfigured("a gang renders for a gateway: give --join URL (or MANAGER_URL)")
    key = read_token(token_file) if token_file else os.environ.get("TURNOUT_JOIN_TOKEN", "")
    if not key:
        raise Misconfigured("a gang needs a worker key: --token-file FILE or TURNOUT_JOIN_TOKEN")
    fingerprints = tuple(one for one in (fingerprint or "").split(",") if one)
    return Joining(join, key, fingerprints=fingerprints, plaintext=plaintext)


def _with(config: "Config", declared: str | None) -> "Config":
    """With the model as it was ordered, which may differ from what is configured here."""
    if declared is None:
        return config
    from turnout.fleet.fleet_records import MODEL

    model = MODEL.load(declared.encode())
    return replace(config, models=(*(m for m in config.models if m.name != model.name), model))
