"""`turnout up`: the whole service on this machine, and what it prints when it is up."""

import asyncio
import contextlib
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.options import Common, with_config
from turnout.cli.ray_commands import need_cluster, need_ray
from turnout.cli.service_commands import (
    BlobsOption,
    CertOption,
    HostOption,
    PortOption,
    RedisOption,
    TlsKeyOption,
)
from turnout.cli.unit_file import PRINT_UNIT, unit_file
from turnout.errors import Misconfigured

if TYPE_CHECKING:
    from turnout.run.config import Config
    from turnout.run.run_up import Address


def register(app: typer.Typer) -> None:
    app.command()(with_config(up))


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
    print_unit: Annotated[
        bool, typer.Option(PRINT_UNIT, help="Print a unit for systemd that runs this command, and end.")
    ] = False,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
) -> None:
    """Run the whole service on this machine, until Ctrl-C.

    With --demo and no terminal attached, it stops once the video is saved.
    """
    if address is not None and not ray:
        raise Misconfigured("--address goes with --ray")
    if ray:
        need_ray()
        if address is not None:
            need_cluster(address)
    flags = {"host": host, "port": port, "redis_url": redis_url, "blobs": blobs, "no_auth": no_auth or None}
    config = common.load(**flags, tls_cert=tls_cert, tls_key=tls_key).config
    if print_unit:
        print(unit_file("the service", sys.argv[1:], config.state_dir, config.gangs.drain_s), end="")
        return None
    if detach:
        from turnout.cli.background_service import start_detached

        if demo is not None:
            raise Misconfigured("--demo needs the terminal; with --detach, use `turnout generate` afterwards")
        return start_detached(config.state_dir, [w for w in sys.argv[1:] if w not in ("-d", "--detach")])
    from turnout.run.run_up import RayCluster, run_up
    from turnout.telemetry.log import start_logging

    level = config.telemetry.log_level
    start_logging("warning" if level == "info" else level, role="up")
    screen = StartScreen(config, common.where, demo, output, ready_fd)
    asyncio.run(run_up(config, screen.ready, RayCluster(address) if ray else None))
    with contextlib.suppress(OSError):
        print("Turnout has stopped. What was queued or running goes on at the next `turnout up`.", flush=True)
    raise typer.Exit(screen.exit_code)


class StartScreen:
    """What is printed once the service is up, and the demo that is rendered then. What will fail later on this machine is
    looked for meanwhile."""

    def __init__(
        self, config: "Config", where: str, demo: str | None, output: Path, ready_fd: int | None
    ) -> None:
        from turnout.cli.doctor_command import foresee

        self._config = config
        self._where = where  # the options by which other commands find this service
        self._demo = demo
        self._output = output
        self._ready_fd = ready_fd
        self._rendering: asyncio.Task[int] | None = None
        self._foreseen = ThreadPoolExecutor(1).submit(foresee, config)

    @property
    def exit_code(self) -> int:
        return self._rendering.result() if self._rendering and not self._rendering.cancelled() else 0

    def ready(self, address: "Address", stopping: asyncio.Event) -> None:
        warnings = "".join(f"\n  {finding.line}" for finding in self._foreseen.result())
        text = _screen(self._config, address)
        # A full disk, or a reader that left: the service runs all the same.
        with contextlib.suppress(OSError):
            if self._ready_fd is None:
                print(f"{text}  Ctrl-C drains and stops.{warnings}", flush=True)
            else:
                with os.fdopen(self._ready_fd, "w", encoding="utf-8") as parent:
                    shows = f"`turnout status{self._where}` and `turnout logs{self._where} -f` show it"
                    stops = f"`turnout down{self._where}` drains and stops it."
                    parent.write(f"{text}  {shows}; {stops}{warnings}\n")
        if self._demo is not None:
            work = _render_demo(self._demo, self._output, address, stopping)
            self._rendering = asyncio.get_running_loop().create_task(work, name="demo")


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
