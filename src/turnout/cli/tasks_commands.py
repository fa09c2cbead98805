"""`turnout tasks`: look at tasks, follow them, fetch what they made, cancel them."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.formatting import ago, clock_time, one_line, shorten, table
from turnout.cli.options import Common, with_common
from turnout.domain.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnout.cli.client import ApiClient
    from turnout.cli.follow import RetryWindow
    from turnout.cli.video_view import VideoView

WATCH_S = 1.0
WATCH_ROWS = 30
PROMPT_WIDTH = 44
SUFFIXES = {"video": ".mp4", "thumbnail": "-thumbnail.webp", "spritesheet": "-spritesheet.jpg"}

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List, show, watch, download and cancel tasks.")
    group.command("list")(list_tasks)
    group.command("show")(show)
    group.command("watch")(watch)
    group.command("download")(download)
    group.command("cancel")(cancel)
    app.add_typer(group, name="tasks")


@with_common
def list_tasks(
    common: Common,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, newest first.")] = 20,
    after: Annotated[str | None, typer.Option(metavar="TASK", help="Those older than this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Your tasks, newest first."""
    from turnout.cli.client import ApiClient

    with ApiClient(common.server()) as client:
        page = client.videos(limit=limit, after=after)
    if as_json:
        print(json.dumps({"data": [video.raw for video in page.videos], "has_more": page.has_more}))
    elif not page.videos:
        print('no tasks yet; make one with: turnout generate "…"', file=sys.stderr)
    else:
        print(_table(page.videos, time.time()))
        if page.has_more:
            print(f"more: turnout tasks list --after {page.videos[-1].id}", file=sys.stderr)


@with_common
def show(common: Common, task: TaskArgument, as_json: JsonOption = False) -> None:
    """Everything about one task."""
    from turnout.cli.client import ApiClient

    with ApiClient(common.server()) as client:
        video = client.video(task)
    if as_json:
        print(json.dumps(video.raw))
        return
    shown = {name: value for name, value in video.raw.items() if value is not None and name != "object"}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        print(f"{name.ljust(width)}  {_value(name, value)}")


@with_common
def watch(
    common: Common,
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="A task's id (default: all, until Ctrl-C).")
    ] = None,
) -> None:
    """Follow one task to its end, or all of yours. Ctrl-C stops watching; the tasks go on."""
    from turnout.cli.client import ApiClient

    with ApiClient(common.server()) as client:
        if task is None:
            _watch_all(client)
        else:
            _watch_one(client, task)


@with_common
def download(
    common: Common,
    task: TaskArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    variant: Annotated[
        str, typer.Option(metavar="video|thumbnail|spritesheet", help="What to fetch.")
    ] = "video",
) -> None:
    """Save what a completed task made."""
    from turnout.cli.client import ApiClient
    from turnout.cli.display import open_display
    from turnout.cli.generate_command import check_target, save

    suffix = SUFFIXES.get(variant)
    if suffix is None:
        raise InvalidRequest(f"variant is one of {', '.join(SUFFIXES)}; not {variant}", "variant")
    target = output or Path(task + suffix)
    check_target(target)
    with ApiClient(common.server()) as client, open_display(quiet=True) as display:
        print(save(client, display, task, target, variant))


@with_common
def cancel(common: Common, task: TaskArgument, as_json: JsonOption = False) -> None:
    """Cancel a task that has not ended."""
    from turnout.cli.client import ApiClient

    with ApiClient(common.server()) as client:
        video = client.cancel(task)
    print(json.dumps(video.raw) if as_json else f"{video.id} {video.status}")


def _watch_one(client: "ApiClient", task: str) -> None:
    from turnout.cli.display import open_display
    from turnout.cli.follow import Follower

    first = client.video(task)
    with open_display(quiet=False) as display:
        video = Follower(client, first, display).wait_ended()
    print(f"{video.id} {video.status}")
    if video.status != "completed":
        if video.error:
            print(f"error: {one_line(video.error)}", file=sys.stderr)
        raise typer.Exit(1)


def _watch_all(client: "ApiClient") -> None:
    from turnout.cli.display import PlainLines, is_live
    from turnout.cli.follow import RetryWindow

    if not is_live(sys.stdout):
        seen: dict[str, PlainLines] = {}
        patience = RetryWindow(PlainLines(sys.stderr))
        while True:
            for video in reversed(_look(client, patience)):
                if video.id in seen or not video.ended:  # what ended before we came is no news
                    seen.setdefault(video.id, PlainLines(sys.stdout, label=video.id)).show(video)
            time.sleep(WATCH_S)
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(Text("…"), console=Console(), auto_refresh=False) as live:

        class Above:
            def show(self, video: "VideoView") -> None:
                pass

            def note(self, line: str) -> None:
                live.console.print(one_line(line), markup=False, highlight=False)

        patience = RetryWindow(Above())
        while True:
            videos = _look(client, patience)
            text = _table(videos, time.time()) if videos else "no tasks yet"
            live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            time.sleep(WATCH_S)


def _look(client: "ApiClient", patience: "RetryWindow") -> "Sequence[VideoView]":
    while True:
        try:
            page = client.videos(limit=WATCH_ROWS)
            patience.worked()
            return page.videos
        except Unavailable as err:
            patience.wait(err)


def _table(videos: "Sequence[VideoView]", now: float) -> str:
    from turnout.cli.display import figures, headline

    rows = [
        (
            video.id,
            shorten(video.model, 24),
            ", ".join(filter(None, (headline(video), figures(video)))),
            "" if video.created_at is None else ago(video.created_at, now),
            shorten(video.prompt, PROMPT_WIDTH),
        )
        for video in videos
    ]
    return table(("TASK", "MODEL", "STATUS", "CREATED", "PROMPT"), rows)


def _value(name: str, value: object) -> str:
    if name.endswith("_at") and isinstance(value, int | float):
        return clock_time(value)
    return one_line(value) if isinstance(value, str) else one_line(json.dumps(value, ensure_ascii=False))
