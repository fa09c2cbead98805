"""`turnout logs`: what the parts of this machine's service have written, of all of them in order, or of one part or task."""

import sys
import time
from typing import Annotated

import typer

from turnout.cli.options import Common, with_config
from turnout.errors import InvalidRequest, Misconfigured

FOLLOW_S = 0.4


def register(app: typer.Typer) -> None:
    app.command("logs")(with_config(logs))


def logs(
    common: Common,
    of: Annotated[
        str | None,
        typer.Argument(
            metavar="[PART|TASK]",
            help="gateway, manager, worker, redis, a replica, or a task's id (default: everything).",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as lines come, until Ctrl-C.")
    ] = False,
    last: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many of the last lines.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="The lines as they were written.")] = False,
) -> None:
    """What the service on this machine has written. For a task: the lines of every part about it, all of them.

    Reads the log files of the state directory, so it also works when the service is down.
    """
    from turnout.cli.log_reading import readable
    from turnout.telemetry.log_lines import LogFile, LogLine, find_logs, in_order

    state_dir = common.load().config.state_dir
    files = {file.path: file for file in find_logs(state_dir)}
    if not files:
        raise Misconfigured(
            f"no logs in {state_dir}; has `turnout up` run there? --state-dir names another place"
        )
    parts = {file.part for file in files.values()}
    task = of if of is not None and of not in parts else None
    if task is not None and not task.startswith("video_") and not any(c.isdigit() for c in task):
        raise InvalidRequest(f"there is no part {task}; there are: {', '.join(sorted(parts))}")

    def new_lines() -> list[LogLine]:
        found: list[LogLine] = []
        for file in find_logs(state_dir):
            known: LogFile = files.setdefault(file.path, file)
            if of is None or task is not None or known.part == of:
                found += known.read_new()
        return in_order(line for line in found if task is None or line.is_of(task))

    shown = new_lines()
    for line in shown if task is not None else shown[-last:]:
        print(line.text if as_json else readable(line))
    if task is not None and not shown and not follow:
        print(f"no line about {task} in {state_dir}", file=sys.stderr)
        raise typer.Exit(1)
    while follow:
        sys.stdout.flush()
        time.sleep(FOLLOW_S)
        for line in new_lines():
            print(line.text if as_json else readable(line))
