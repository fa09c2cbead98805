"""The commands that run Turnout itself: `up` for all of it on one machine, and one for each role."""

import asyncio
import contextlib
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.options import Common, with_config
from turnout.cli.ray_commands import need_ray
from turnout.errors import Misconfigured

if TYPE_CHECKING:
    from turnout.run.config import Config
    from turnout.run.run_up import Address

HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
PortOption = Annotated[int | None, typer.Option("--port", help="Port to listen on; 0 takes a free one.")]
RedisOption = Annotated[
    str | None, typer.Option("--redis-url", help="A Redis >= 7 of your own instead of the embedded one.")
]
BlobsOption = Annotated[
    str | None, typer.Option("--blobs", help="Where videos go: a directory or s3://bucket/prefix.")
]
CertOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert", metavar="FILE", help="Certificate chain (PEM): HTTPS only. Read again when it changes."
    ),
]
TlsKeyOption = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Its private key, if it is in a file of its own."),
]
_IN_BACKGROUND = "  `turnout status` and `turnout logs -f` show it; `turnout down` drains and stops it."


def register(app: typer.Typer) -> None:
    app.command()(with_config(up))
    app.command()(with_config(gateway))
    app.command()(with_config(manager))
    app.command()(with_config(worker))
    app.command()(with_config(redis))


def up(
    common: Common,
    host: HostOption = None,
    port: PortOption = None,
    redis_url: RedisOption = None,
    blobs: BlobsOption = None,
    tls_cert: CertOption = None,
    tls_key: TlsKeyOption = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Need no key. Only this machine can call, on loopback.")
    ] = False,
    ray: Annotated[bool, typer.Option("--ray", help="Render on a Ray cluster; starts one here.")] = False,
    address: Annotated[
        str | None, typer.Option("--address", help="With --ray: a cluster that runs already.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Return once it is up; `turnout down` stops it.")
    ] = False,
    demo: Annotated[
        str | None, typer.Option("--demo", help="Render this prompt once the service is up.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where the demo's video goes.")] = Path(
        "turnout-demo.mp4"
    ),
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
) -> None:
    """Run the whole service on this machine, until Ctrl-C.

    With --demo and no terminal attached, it stops once the video is saved.
    """
    from turnout.cli.doctor_command import foresee
    from turnout.run.run_up import RayCluster, run_up
    from turnout.telemetry.log import start_logging

    if address is not None and not ray:
        raise Misconfigured("--address goes with --ray")
    if ray:
        need_ray()
    config = common.load(
        host=host,
        port=port,
        redis_url=redis_url,
        blobs=blobs,
        tls_cert=tls_cert,
        tls_key=tls_key,
        no_auth=no_auth or None,
    ).config
    if detach:
        from turnout.cli.background_service import start_detached

        if demo is not None:
            raise Misconfigured("--demo needs the terminal; with --detach, use `turnout generate` afterwards")
        return start_detached(config.state_dir, [w for w in sys.argv[1:] if w not in ("-d", "--detach")])
    start_logging(
        "warning" if config.telemetry.log_level == "info" else config.telemetry.log_level, role="up"
    )
    demos: list[asyncio.Task[int]] = []
    foreseen = ThreadPoolExecutor(1).submit(foresee, config)

    def ready(address: "Address", stopping: asyncio.Event) -> None:
        warnings = "".join(f"\n  {finding.line}" for finding in foreseen.result())
        with contextlib.suppress(
            OSError
        ):  # a full disk, or a reader that left: the service runs all the same
            if ready_fd is None:
                print(_screen(config, address) + "  Ctrl-C drains and stops." + warnings, flush=True)
            else:
                with os.fdopen(ready_fd, "w", encoding="utf-8") as parent:
                    parent.write(_screen(config, address) + _IN_BACKGROUND + warnings + "\n")
        if demo is not None:
            work = _render_demo(demo, output, address, stopping)
            demos.append(asyncio.get_running_loop().create_task(work, name="demo"))

    asyncio.run(run_up(config, ready, RayCluster(address) if ray else None))
    with contextlib.suppress(OSError):
        print("Turnout has stopped. What was queued or running goes on at the next `turnout up`.", flush=True)
    raise typer.Exit(demos[0].result() if demos and not demos[0].cancelled() else 0)


async def _render_demo(prompt: str, output: Path, address: "Address", stopping: asyncio.Event) -> int:
    """The exit code of `turnout generate`."""
    argv = [sys.executable, "-m", "turnout", "generate", prompt, "-o", str(output)]
    # By the environment: arguments can be read by every user of the machine.
    server = {"TURNOUT_URL": address.url, "TURNOUT_API_KEY": address.api_key}
    process = await asyncio.create_subprocess_exec(*argv, env={**os.environ, **server})
    exit_code = await process.wait()
    if sys.stdin.isatty() and sys.stdout.isatty():
        print("Turnout is still running; Ctrl-C stops it.", flush=True)
    else:
        stopping.set()
    return exit_code


def gateway(
    common: Common,
    host: HostOption = None,
    port: PortOption = None,
    redis_url: RedisOption = None,
    tls_cert: CertOption = None,
    tls_key: TlsKeyOption = None,
    fd: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
    local_fd: Annotated[int | None, typer.Option("--local-fd", hidden=True)] = None,
) -> None:
    """Run one gateway: HTTP, events and WebSockets. Any number may share a Redis."""
    from turnout.run.run_gateway import run_gateway
    from turnout.run.run_up import listen

    flags = {"host": host, "port": port, "redis_url": redis_url, "tls_cert": tls_cert, "tls_key": tls_key}
    config = start(common, "gateway", flags)
    listening = listen(config.gateway.host, config.gateway.port) if fd is None else socket.socket(fileno=fd)
    with listening:
        _run(run_gateway(config, listening, None if local_fd is None else socket.socket(fileno=local_fd)))


def manager(common: Common, redis_url: RedisOption = None) -> None:
    """Run one manager: decides where models live, and keeps leases, webhooks and expiry. The first to come works, others stand by."""
    from turnout.run.run_manager import run_manager

    _run(run_manager(start(common, "manager", {"redis_url": redis_url})))


def worker(
    common: Common,
    redis_url: RedisOption = None,
    blobs: BlobsOption = None,
    join: Annotated[
        str | None,
        typer.Option("--join", "--manager-url", envvar="MANAGER_URL", help="The gateway to run models for."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", envvar="TURNOUT_JOIN_TOKEN", help="A worker key (turnout keys create --role worker)."
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            "--public-url", envvar="PUBLIC_URL", help="How gateways reach this worker, if not directly."
        ),
    ] = None,
    tunnel: Annotated[
        bool,
        typer.Option(
            "--tunnel", help="Nobody can reach this worker: hold a connection open to every gateway."
        ),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--id",
            "--worker-id",
            envvar="WORKER_ID",
            help="Its name, and its own state: several can live on one machine.",
        ),
    ] = None,
    listen_host: Annotated[
        str,
        typer.Option("--listen-host", "--host", envvar="WORKER_HOST", help="Where gateways reach it."),
    ] = "127.0.0.1",
    listen_port: Annotated[
        int, typer.Option("--listen-port", "--port", envvar="WORKER_PORT", help="Its port; 0: a free one.")
    ] = 8100,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", help="Certificates to trust besides the system's, for an https gateway."),
    ] = None,
    gateway_fingerprint: Annotated[
        str | None,
        typer.Option(
            "--gateway-fingerprint",
            envvar="WORKER_GATEWAY_FINGERPRINT",
            help="SHA-256 of the gateway's certificate: it must show this one, whoever signed it. Several with commas.",
        ),
    ] = None,
    allow_plaintext: Annotated[
        bool,
        typer.Option(
            "--allow-plaintext",
            envvar="WORKER_ALLOW_PLAINTEXT",
            help="Join another machine by http: whoever is on the way reads key and prompts, and can give orders.",
        ),
    ] = False,
    allow_engine: Annotated[
        list[str] | None,
        typer.Option("--allow-engine", help="Run only engines of this kind (may be repeated)."),
    ] = None,
    allow_command: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-command", help="Run this command line if ordered, word for word (may be repeated)."
        ),
    ] = None,
    weights_dir: Annotated[
        list[Path] | None,
        typer.Option("--weights-dir", help="Load weights from this folder if ordered (may be repeated)."),
    ] = None,
) -> None:
    """Run this machine's worker.

    It runs engine servers (vLLM, llama.cpp) for the gateway at --join and needs nothing else. With the service's Redis
    (--redis-url) and object store (--blobs) it also renders videos.

    What it runs is bounded by itself, whatever the gateway orders: a command only if it is allowed here, weights from the
    hub, from packages and from folders that are allowed here. A gateway on this machine may name any weights.
    """
    if join is None:
        raise Misconfigured("a worker joins a gateway: give --join URL (or MANAGER_URL) and --token KEY")
    if not token:
        raise Misconfigured("joining needs a worker key: --token or TURNOUT_JOIN_TOKEN")
    from turnout.run.joining import Joining, check_joining
    from turnout.run.run_up import listen
    from turnout.run.run_worker import run_engine_worker

    config = start(
        common,
        "worker",
        {
            "redis_url": redis_url,
            "blobs": blobs,
            "ca_file": ca_file,
            "worker_engines": allow_engine or None,
            "worker_commands": allow_command or None,
            "worker_weights_dirs": weights_dir or None,
        },
    )
    fingerprints = tuple(one for one in (gateway_fingerprint or "").split(",") if one)
    joining = Joining(join, token, name, public_url, tunnel, fingerprints, allow_plaintext)
    check_joining(joining)
    host, port = ("127.0.0.1", 0) if tunnel else (listen_host, listen_port)
    with listen(host, port) as listening:
        _run(run_engine_worker(config, joining, listening))


def redis(
    common: Common,
    bind: Annotated[
        str, typer.Option("--bind", help="Addresses to listen on, with spaces between them.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on.", min=1, max=65535)] = 6379,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where its data lies (default: redis/ in the state directory)."),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", help="Holds the password, if redis_password does not say it."),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option("--max-memory", help="As in 2gb: past it writes are refused, nothing is thrown away."),
    ] = None,
) -> None:
    """Run the embedded Valkey alone, for services on other machines. It needs a password (TURNOUT_REDIS_PASSWORD).

    What it has answered is on the disk. SIGTERM ends it with everything written.
    """
    from turnout.run.open_stores import embedded_redis_dir
    from turnout.store.valkey import RedisListening, exec_valkey

    config = start(common, "redis", {})
    password = config.redis.redis_password or (password_file.read_text().strip() if password_file else "")
    if not password:
        raise Misconfigured(
            "a Redis that others reach needs a password: TURNOUT_REDIS_PASSWORD or --password-file"
        )
    exec_valkey(directory or embedded_redis_dir(config), password, RedisListening(bind, port, max_memory))


def start(common: Common, role: str, flags: Mapping[str, Any], **log_fields: Any) -> "Config":
    """Loads the configuration with `flags` on top, and starts the log."""
    from turnout.telemetry.log import start_logging

    config = common.load(**flags).config
    start_logging(
        config.telemetry.log_level, role=role, **{k: v for k, v in log_fields.items() if v is not None}
    )
    return config


def _run(main: Any) -> None:
    import uvloop

    from turnout.telemetry.log import drain_log

    try:
        uvloop.run(main)
    finally:
        drain_log()  # before a traceback, so that it is the last that a dead process has said


def _screen(config: "Config", address: "Address") -> str:
    redis = "embedded" if config.redis.redis_url is None else "as configured"
    models = ", ".join(
        [
            *(f"{m.name} ({m.gang.ranks} ranks)" for m in config.video_models),
            *(f"{m.name} (chat)" for m in config.models if m.video is None),
        ]
    )
    turnout = "turnout" if which("turnout") else f"{shlex.quote(sys.executable)} -m turnout"
    return f"""
  Turnout is up at {address.public_url}

  page       {address.page_link}
             (logs a browser in once, within two minutes; `turnout open` makes another link)
  keys       {"none needed on this machine (--no-auth)" if config.access.no_auth else "in the next line; `turnout keys` makes more"}
  models     {models}
  data       {config.state_dir}  (Redis {redis}, objects in {config.objects.blobs or "objects/"}, logs in logs/)

  export TURNOUT_URL={address.url} TURNOUT_API_KEY={address.api_key}
  {turnout} generate "a red square moving to the right" -o square.mp4
  curl $TURNOUT_URL/v1/models -H "Authorization: Bearer $TURNOUT_API_KEY"

"""
