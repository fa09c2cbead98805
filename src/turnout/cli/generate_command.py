"""`turnout generate`: one prompt in, one mp4 out. It tells the user what happens in between."""

import json
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import duration, one_line
from turnout.cli.options import Common, with_common
from turnout.errors import InvalidRequest

if TYPE_CHECKING:
    from turnout.cli.client import VideoOrder
    from turnout.cli.server_answers import VideoAnswer


def register(app: typer.Typer) -> None:
    app.command("generate", epilog=EPILOG)(generate)


EPILOG = """Examples:

  turnout generate "a red balloon over a lake" -o balloon.mp4

  turnout generate "it starts to rain" --image photo.jpg --seconds 3

  turnout generate "waves" --json | jq -r .path

Ctrl-C asks the server to cancel the task; a second one leaves at once."""
EnhanceOption = Annotated[
    bool, typer.Option("--enhance", help="The server's chat model rewrites the prompt.")
]


@with_common
def generate(
    common: Common,
    prompt: Annotated[str, typer.Argument(help="What the video shows.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to save it (default: <task>.mp4)."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model (default: the server's first).")] = None,
    image: Annotated[
        str | None, typer.Option(metavar="FILE|URL", help="First frame, for models that take one.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same video (default: random).")] = None,
    size: Annotated[str | None, typer.Option(metavar="WxH", help="Width and height, as in 832x480.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Length of the clip.")] = None,
    frames: Annotated[int | None, typer.Option(help="Length in frames, instead of --seconds.")] = None,
    fps: Annotated[int | None, typer.Option(help="Frames a second.")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps: more is slower and finer.")] = None,
    guidance: Annotated[
        str | None,
        typer.Option(metavar="G|LOW,HIGH", help="How closely to follow the prompt: one number or two."),
    ] = None,
    shift: Annotated[float | None, typer.Option(help="Shift of the noise schedule.")] = None,
    negative: Annotated[str | None, typer.Option(help="What the video must not show.")] = None,
    enhance: EnhanceOption = False,
    priority: Annotated[
        str | None, typer.Option(metavar="low|normal|high", help="Among your own tasks.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, no bar.")
    ] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Print the task's id and leave.")] = False,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop waiting after this long; the task goes on.")
    ] = None,
) -> None:
    """Render a prompt to an mp4."""
    from turnout.cli.display import open_display
    from turnout.cli.download import check_target, save
    from turnout.cli.generate_run import GenerateRun

    if output:
        if no_wait:
            raise InvalidRequest("--no-wait saves nothing: fetch it later with tasks download")
        check_target(output)
    fields = {"prompt": prompt, "model": model, "size": size, "frames": frames, "fps": fps, "steps": steps}
    fields |= {"guidance": _guidance(guidance), "shift": shift, "seed": seed, "negative_prompt": negative}
    fields |= {"seconds": None if seconds is None else f"{seconds:g}", "enhance": enhance or None}
    order = _order(fields, image, priority)
    started, path = time.monotonic(), None
    with common.client() as client, open_display(quiet=as_json) as display:
        run = GenerateRun(client, display, order, None if timeout is None else started + timeout)
        video = run.submit()
        display.show(video)
        if not no_wait:
            video = run.wait_ended(video)
            if video.status == "completed":
                path = save(client, display, video.id, output or Path(f"{video.id}.mp4"))
    _print_end(video, path, time.monotonic() - started, as_json)
    if not no_wait and path is None:
        raise typer.Exit(1)


def _order(fields: dict[str, Any], image: str | None, priority: str | None) -> "VideoOrder":
    from turnout.cli.client import VideoOrder

    if priority not in (None, "low", "normal", "high"):
        raise InvalidRequest(f"priority is low, normal or high, not {priority}", "priority")
    if fields["shift"] is not None and not math.isfinite(fields["shift"]):
        raise InvalidRequest("shift is a number", "shift")
    given = {name: value for name, value in fields.items() if value is not None}
    return VideoOrder(*_with_image(given, image), priority)


def _print_end(video: "VideoAnswer", path: Path | None, took_s: float, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**video.as_json(), "path": path and str(path), "took_s": round(took_s, 3)}))
    elif path:
        print(f"{path}\nseed {video.seed}, took {duration(took_s)}")
    elif video.ended:
        reason = video.error.message if video.error else "no reason given"
        print(f"error: the task {video.status}: {one_line(reason)}", file=sys.stderr)
    else:
        print(video.id)
        print(f"watch it with: turnout tasks watch {video.id}", file=sys.stderr)


def _with_image(fields: dict[str, Any], image: str | None) -> tuple[dict[str, Any], Path | None]:
    if image is None:
        return fields, None
    if image.startswith(("http://", "https://")):
        return {**fields, "input_reference": {"image_url": image}}, None
    path = Path(image).expanduser()
    if not path.is_file():
        raise InvalidRequest(f"there is no image {image}", "image")
    return fields, path


def _guidance(value: str | None) -> float | list[float] | None:
    if value is None:
        return None
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(map(math.isfinite, numbers)):
        raise InvalidRequest(f"guidance is one number or two, as in 3.0,4.0; not {value}", "guidance")
    return numbers[0] if len(numbers) == 1 else numbers
