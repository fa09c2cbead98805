"""`turnout tasks`: look at tasks, follow them, fetch what they made, cancel them."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli import dead_commands
from turnout.cli.formatting import ago, done, field_list, one_line, shorten, table
from turnout.cli.options import Common, JsonOption, with_common
from turnout.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from turnout.cli.client import ApiClient
    from turnout.cli.server_answers import VideoAnswer

WATCH_S = 1.0
WATCH_ROWS = 30
PROMPT_WIDTH = 44
SUFFIXES = {"video": ".mp4", "thumbnail": "-thumbnail.webp", "spritesheet": "-spritesheet.jpg"}

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.", show_default=False)]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        no_args_is_help=True, help="List, show, watch, download, cancel, remix and delete tasks."
    )
    group.command("list")(list_tasks)
    group.command("show")(show)
    group.command("watch")(watch)
    group.command("download")(download)
    group.command("cancel")(cancel)
    group.command("remix")(remix)
    group.command("delete")(delete)
    dead_commands.register(group)
    app.add_typer(group, name="tasks")


@with_common
def list_tasks(
    common: Common,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, newest first.")] = 20,
    after: Annotated[str | None, typer.Option(metavar="TASK", help="Those older than this one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Your tasks, newest first."""
    with common.client() as client:
        page = client.videos(limit=limit, after=after)
    if as_json:
        print(json.dumps({"data": [video.as_json() for video in page.data], "has_more": page.has_more}))
    elif not page.data:
        print('no tasks yet; make one with: turnout generate "…"', file=sys.stderr)
    else:
        print(_table(page.data, time.time()))
        if page.has_more:
            print(f"more: turnout tasks list --after {page.data[-1].id}", file=sys.stderr)


@with_common
def show(common: Common, task: TaskArgument, as_json: JsonOption = False) -> None:
    """Everything about one task."""
    with common.client() as client:
        video = client.video(task)
    if as_json:
        print(json.dumps(video.as_json()))
    else:
        shown = {k: v for k, v in video.as_json().items() if v is not None and k != "object"}
        print(field_list(shown))


@with_common
def watch(
    common: Common,
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="A task's id (default: all, until Ctrl-C).")
    ] = None,
) -> None:
    """Follow one task to its end, or all of yours. Ctrl-C stops watching; the tasks go on."""
    with common.client() as client:
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
    as_json: JsonOption = False,
) -> None:
    """Save what a completed task made."""
    from turnout.cli.display import open_display
    from turnout.cli.download import check_target, save

    suffix = SUFFIXES.get(variant)
    if suffix is None:
        raise InvalidRequest(f"variant is one of {', '.join(SUFFIXES)}; not {variant}", "variant")
    target = output or Path(task + suffix)
    check_target(target)
    with common.client() as client, open_display(quiet=True) as display:
        path = str(save(client, display, task, target, variant))
        print(done(as_json, path, id=task, path=path))


@with_common
def cancel(common: Common, task: TaskArgument, as_json: JsonOption = False) -> None:
    """Cancel a task that has not ended."""
    with common.client() as client:
        video = client.cancel(task)
    print(json.dumps(video.as_json()) if as_json else f"{video.id} {video.status}")


@with_common
def remix(
    common: Common,
    task: TaskArgument,
    prompt: Annotated[str | None, typer.Argument(help="The new prompt (default: the same).")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed (default: the same).")] = None,
    as_json: JsonOption = False,
) -> None:
    """The same again with another prompt or seed. Follow it with `turnout tasks watch`."""
    from turnout.cli.server_answers import VideoAnswer, read

    with common.client() as client:
        body = {"prompt": prompt or client.video(task).prompt, "seed": seed}
        video = read(VideoAnswer, client.call("POST", "v1", "videos", task, "remix", body=body))
    print(json.dumps(video.as_json()) if as_json else f"{video.id} {video.status}")


@with_common
def delete(
    common: Common,
    task: TaskArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a task and what it made, for good; one that has not ended is cancelled first."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {task} and its video for good?", abort=True)
    common.call("DELETE", "v1", "videos", task)
    print(done(as_json, f"{task} deleted", id=task, deleted=True))


def _watch_one(client: "ApiClient", task: str) -> None:
    from turnout.cli.display import open_display
    from turnout.cli.follow import Follower

    first = client.video(task)
    with open_display(quiet=False) as display:
        if first.notice:
            display.note(one_line(first.notice))
        video = Follower(client, first, display).wait_ended()
    print(f"{video.id} {video.status}")
    if video.status != "completed":
        if video.error:
            print(f"error: {one_line(video.error.message)}", file=sys.stderr)
        raise typer.Exit(1)


def _watch_all(client: "ApiClient") -> None:
    from turnout.cli.display import is_live

    if is_live(sys.stdout):
        _watch_live(client)
    else:
        _watch_lines(client)


def _watch_lines(client: "ApiClient") -> None:
    from turnout.cli.display import PlainLines

    seen: dict[str, PlainLines] = {}
    for videos in _polled(client, PlainLines(sys.stderr).note):
        for video in reversed(videos):
            if video.id in seen or not video.ended:  # what ended before is no news
                seen.setdefault(video.id, PlainLines(sys.stdout, label=video.id)).show(video)


def _watch_live(client: "ApiClient") -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(Text("…"), console=Console(), auto_refresh=False) as live:
        for videos in _polled(client, lambda line: live.console.print(Text(one_line(line)))):
            text = _table(videos, time.time()) if videos else "no tasks yet"
            live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


def _polled(client: "ApiClient", note: "Callable[[str], None]") -> "Iterator[Sequence[VideoAnswer]]":
    """The newest tasks, once a second and for ever."""
    from turnout.cli.follow import RetryWindow

    retries = RetryWindow(note)
    while True:
        yield retries.call(lambda: client.videos(limit=WATCH_ROWS)).data
        time.sleep(WATCH_S)


def _table(videos: "Sequence[VideoAnswer]", now: float) -> str:
    from turnout.cli.display import figures, headline

    rows = [
        (
            video.id,
            shorten(video.model, 24),
            ", ".join(filter(None, (headline(video), figures(video)))),
            ago(video.created_at, now),
            shorten(video.prompt, PROMPT_WIDTH),
        )
        for video in videos
    ]
    return table(("TASK", "MODEL", "STATUS", "CREATED", "PROMPT"), rows)
