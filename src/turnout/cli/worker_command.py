"""`turnout worker`: runs models on this machine for a gateway."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from turnout.cli.options import Common, with_config
from turnout.cli.service_commands import AliveOption, run, start
from turnout.cli.unit_file import PRINT_UNIT, unit_file
from turnout.errors import Misconfigured

JoinOption = Annotated[
    str | None,
    typer.Option("--join", "--manager-url", envvar="MANAGER_URL", help="The gateway to run models for."),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="TURNOUT_JOIN_TOKEN",
        help="A one-time join code (turnout workers add), or a worker key (turnout keys create --role worker).",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="TURNOUT_JOIN_TOKEN_FILE",
        metavar="FILE",
        help="A file with a worker key, in place of TURNOUT_JOIN_TOKEN. Ranks also take a token of their gang.",
    ),
]
PublicUrlOption = Annotated[
    str | None,
    typer.Option(
        "--public-url", envvar="PUBLIC_URL", help="How gateways reach this worker, if not directly."
    ),
]
TunnelOption = Annotated[
    bool,
    typer.Option("--tunnel", help="Nobody can reach this worker: hold a connection open to every gateway."),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        "--worker-id",
        envvar="WORKER_ID",
        help="Its name, and its own state: several can live on one machine.",
    ),
]
ListenHostOption = Annotated[
    str,
    typer.Option("--listen-host", "--host", envvar="WORKER_HOST", help="Where gateways reach it."),
]
ListenPortOption = Annotated[
    int,
    typer.Option(
        "--listen-port", "--port", envvar="WORKER_PORT", min=0, max=65535, help="Its port; 0: a free one."
    ),
]
CaFileOption = Annotated[
    Path | None,
    typer.Option("--ca-file", help="Certificates to trust besides the system's, for an https gateway."),
]
FingerprintOption = Annotated[
    str | None,
    typer.Option(
        "--gateway-fingerprint",
        envvar="WORKER_GATEWAY_FINGERPRINT",
        help="SHA-256 of the gateway's certificate: it must show this one, whoever signed it. Several with commas.",
    ),
]
PlaintextOption = Annotated[
    bool,
    typer.Option(
        "--allow-plaintext",
        envvar="WORKER_ALLOW_PLAINTEXT",
        help="Join another machine by http: whoever is on the way reads key and prompts, and can give orders.",
    ),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option("--allow-engine", help="Run only engines of this kind (may be repeated)."),
]
CommandOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-command", help="Run this command line if ordered, word for word (may be repeated)."
    ),
]
WeightsDirOption = Annotated[
    list[Path] | None,
    typer.Option("--weights-dir", help="Load weights from this folder if ordered (may be repeated)."),
]


def register(app: typer.Typer) -> None:
    app.command()(with_config(worker))


def worker(
    common: Common,
    join: JoinOption = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    public_url: PublicUrlOption = None,
    tunnel: TunnelOption = False,
    name: NameOption = None,
    listen_host: ListenHostOption = "127.0.0.1",
    listen_port: ListenPortOption = 8100,
    ca_file: CaFileOption = None,
    gateway_fingerprint: FingerprintOption = None,
    allow_plaintext: PlaintextOption = False,
    allow_engine: EngineOption = None,
    allow_command: CommandOption = None,
    weights_dir: WeightsDirOption = None,
    alive_file: AliveOption = None,
    print_unit: Annotated[
        bool, typer.Option(PRINT_UNIT, help="Print a unit for systemd that runs this command, and end.")
    ] = False,
) -> None:
    """Run this machine's worker.

    It runs engine servers (vLLM, llama.cpp) and renders videos (with torch and diffusers installed) for the gateway at --join.
    It only calls out, and needs nothing but its key.

    What it runs is bounded by itself, whatever the gateway orders: a command only if it is allowed here, weights from the
    hub, from packages and from folders that are allowed here. A gateway on this machine may name any weights.
    """
    if join is None:
        raise Misconfigured("a worker joins a gateway: give --join URL (or MANAGER_URL) and --token KEY")
    if print_unit:
        if token_file is None or token is not None:
            raise Misconfigured("anyone can read a unit: give the key by --token-file, and no --token")
        config = common.load().config
        print(unit_file("a worker", sys.argv[1:], config.state_dir, config.gangs.drain_s), end="")
        return
    token = read_token(token_file) if token_file else token
    if not token:
        raise Misconfigured("joining needs a join code or a worker key: --token or TURNOUT_JOIN_TOKEN")
    from turnout.run.joining import Joining, check_joining
    from turnout.run.listening import listen
    from turnout.run.run_worker import run_engine_worker

    flags = {"worker_engines": allow_engine or None, "worker_commands": allow_command or None}
    flags |= {"ca_file": ca_file or common.ca_file, "worker_weights_dirs": weights_dir or None}
    config = start(common, "worker", flags).of_computing()
    fingerprints = tuple(one for one in (gateway_fingerprint or "").split(",") if one)
    joining = Joining(join, token, name, public_url, tunnel, fingerprints, allow_plaintext)
    check_joining(joining)
    host, port = ("127.0.0.1", 0) if tunnel else (listen_host, listen_port)
    with listen(host, port) as listening:
        run(run_engine_worker(config, joining, listening), alive_file)


def read_token(file: Path) -> str:
    """Raises Misconfigured."""
    try:
        return file.read_text().strip()
    except UnicodeDecodeError as err:
        raise Misconfigured(f"--token-file {file}: no key is in it") from err
    except OSError as err:
        raise Misconfigured(f"--token-file {file}: {err.strerror}") from err
