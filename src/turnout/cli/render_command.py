"""`turnout render`: a prompt or a file of them in, videos out, then the end: for batches and for jobs on clusters."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.options import Common, with_common
from turnout.errors import InvalidRequest, Misconfigured

if TYPE_CHECKING:
    from turnout.run.config import Config

_BEYOND_DRAIN_S = 60.0


def register(app: typer.Typer) -> None:
    app.command("render", epilog=EPILOG)(with_common(render))


EPILOG = """Examples:

  turnout render "a red balloon over a lake"

  turnout render prompts.jsonl -o videos --results results.jsonl

A line of the file is what POST /v1/videos takes, as {"prompt": "waves", "size": "832x480", "seed": 7}; "id" names its file.
Run it again to go on: tasks that were submitted are found again, files that are there are not rendered again.

Exit codes: 0 all rendered, 1 some failed, 2 a line is wrong, 130 interrupted (the tasks go on)."""


def render(
    common: Common,
    source: Annotated[
        str, typer.Argument(metavar="PROMPT|FILE.jsonl", help="What to render; - reads lines.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Where videos go.")] = Path(
        "."
    ),
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="FILE", help="Where result lines go (default: stdout)."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model of lines that name none.")] = None,
    parallel: Annotated[int, typer.Option(help="Tasks submitted at once.", min=1, max=100)] = 8,
    no_download: Annotated[
        bool, typer.Option("--no-download", help="Tell the videos' URLs instead of saving them.")
    ] = False,
    ray: Annotated[
        bool, typer.Option("--ray", help="Render on a Ray cluster, with a service for this alone.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option("--address", envvar="RAY_ADDRESS", help="With --ray: a cluster that runs already."),
    ] = None,
) -> None:
    """Render a prompt, or each line of a file, and end.

    It uses the server that --url, TURNOUT_URL or a running `turnout up` names. Where there is none, and always with --ray, it
    runs a service of its own for as long as it takes.
    """
    from turnout.cli.render_batch import Batch, read_lines

    lines = read_lines(source, model)
    try:  # before anything is started or asked for
        if not no_download:
            output.mkdir(parents=True, exist_ok=True)
        opened = _sink(results)
    except OSError as err:
        raise InvalidRequest(f"{err.filename}: {err.strerror}") from err
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    own = _own_service(common, ray, address)
    failed = 0
    try:
        with common.client() as client, opened as sink:
            batch = Batch(client, None if no_download else output, parallel)
            for result in batch.run(lines):
                failed += result["status"] != "completed"
                sink.write(json.dumps(result, ensure_ascii=False) + "\n")
                sink.flush()
    except KeyboardInterrupt:
        print("interrupted; run it again to go on", file=sys.stderr, flush=True)
        _stop(own)
        os._exit(130)  # threads that follow tasks would be waited for
    except BaseException:
        _stop(own)
        raise
    _stop(own)
    print(f"{len(lines) - failed} of {len(lines)} rendered", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _stop(own: "Config | None") -> None:
    if own is not None:
        from turnout.cli.background_service import stop_service

        stop_service(own.state_dir, own.gangs.drain_s + _BEYOND_DRAIN_S)


def _sink(results: Path | None) -> Any:
    return contextlib.nullcontext(sys.stdout) if results is None else results.open("a", encoding="utf-8")


def _own_service(common: Common, ray: bool, address: str | None) -> "Config | None":
    """Starts a service if there is none; its configuration, or None when there is one to use."""
    from turnout.cli.background_service import start_detached
    from turnout.run.state_dir import find_holder

    server = common.server()
    named = server.origin != "the default"
    config = common.load().config
    running = find_holder(config.state_dir) is not None
    if ray and (running or server.origin.startswith(("from --url", "from TURNOUT_URL"))):
        raise Misconfigured(
            "--ray runs a service of its own: leave out --url and TURNOUT_URL, and stop the one that runs here"
        )
    if running or (named and server.pid is None):
        return None
    words = ["up", "--state-dir", str(config.state_dir), "--port", "0"]
    words += ["--config", str(common.config_file)] if common.config_file else []
    words += ["--ray", *(["--address", address] if address else [])] if ray else []
    with contextlib.redirect_stdout(sys.stderr):
        start_detached(config.state_dir, words)
    return config
