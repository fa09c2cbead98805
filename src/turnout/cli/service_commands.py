"""The commands that run one role of the service each, and the options that they share with `up` and `worker`."""

import socket
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.options import Common, with_config
from turnout.errors import Misconfigured

if TYPE_CHECKING:
    from turnout.run.config import Config

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
AliveOption = Annotated[
    Path | None,
    typer.Option(
        "--alive-file",
        metavar="FILE",
        help="Touched every two seconds while this process works: for a liveness probe.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command()(with_config(gateway))
    app.command()(with_config(manager))
    app.command()(with_config(redis))


def gateway(
    common: Common,
    host: HostOption = None,
    port: PortOption = None,
    redis_url: RedisOption = None,
    tls_cert: CertOption = None,
    tls_key: TlsKeyOption = None,
    alive_file: AliveOption = None,
    fd: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
    local_fd: Annotated[int | None, typer.Option("--local-fd", hidden=True)] = None,
) -> None:
    """Run one gateway: HTTP, events and WebSockets. Any number may share a Redis."""
    from turnout.run.listening import listen
    from turnout.run.run_gateway import run_gateway

    flags = {"host": host, "port": port, "redis_url": redis_url, "tls_cert": tls_cert, "tls_key": tls_key}
    config = start(common, "gateway", flags)
    listening = listen(config.gateway.host, config.gateway.port) if fd is None else socket.socket(fileno=fd)
    with listening:
        local = None if local_fd is None else socket.socket(fileno=local_fd)
        run(run_gateway(config, listening, local), alive_file)


def manager(common: Common, redis_url: RedisOption = None, alive_file: AliveOption = None) -> None:
    """Run one manager: decides where models live, and keeps leases, webhooks and expiry. The first to come works, others stand by."""
    from turnout.run.run_manager import run_manager

    run(run_manager(start(common, "manager", {"redis_url": redis_url})), alive_file)


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
    password = config.redis.redis_password or (_password(password_file) if password_file else "")
    if not password:
        raise Misconfigured(
            "a Redis that others reach needs a password: TURNOUT_REDIS_PASSWORD or --password-file"
        )
    exec_valkey(directory or embedded_redis_dir(config), password, RedisListening(bind, port, max_memory))


def _password(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as err:
        raise Misconfigured(f"--password-file {file}: {err}") from err


def start(common: Common, role: str, flags: Mapping[str, Any], **log_fields: Any) -> "Config":
    """Loads the configuration with `flags` on top, and starts the log."""
    from turnout.telemetry.log import start_logging

    config = common.load(**flags).config
    start_logging(
        config.telemetry.log_level, role=role, **{k: v for k, v in log_fields.items() if v is not None}
    )
    return config


def run(main: Coroutine[Any, Any, None], alive_file: Path | None = None) -> None:
    import uvloop

    from turnout.processes.life_signs import giving_signs
    from turnout.telemetry.log import drain_log

    async def work() -> None:
        with giving_signs(alive_file):
            await main

    try:
        uvloop.run(work())
    finally:
        drain_log()  # before a traceback, so that it is the last that a dead process has said
