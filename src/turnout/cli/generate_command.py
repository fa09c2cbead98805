"""`turnout generate`: one prompt in, one mp4 out, with everything that can happen in between told to the user."""

import json
import math
import os
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.formatting import duration, one_line
from turnout.cli.options import Common, with_common
from turnout.domain.errors import InvalidRequest, TurnoutError, Unavailable

if TYPE_CHECKING:
    import httpx

    from turnout.cli.client import ApiClient, VideoOrder
    from turnout.cli.follow import Display
    from turnout.cli.video_view import VideoView

CANCEL_PATIENCE_S = 10.0


def register(app: typer.Typer) -> None:
    app.command("generate", epilog=EPILOG)(generate)


EPILOG = """Examples:

  turnout generate "a red balloon over a lake" -o balloon.mp4

  turnout generate "it starts to rain" --image photo.jpg --seconds 3

  turnout generate "waves" --json | jq -r .path

Ctrl-C asks the server to cancel the task; a second one leaves at once."""


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
    fields: dict[str, Any] = {
        "prompt": prompt,
        "model": model,
        "size": size,
        "seconds": None if seconds is None else f"{seconds:g}",  # the dialect writes seconds as text
        "frames": frames,
        "fps": fps,
        "steps": steps,
        "guidance": _guidance(guidance),
        "shift": shift,
        "seed": seed,
        "negative_prompt": negative,
    }
    if priority not in (None, "low", "normal", "high"):
        raise InvalidRequest(f"priority is low, normal or high, not {priority}", "priority")
    if shift is not None and not math.isfinite(shift):
        raise InvalidRequest("shift is a number", "shift")
    if no_wait and output:
        raise InvalidRequest(
            "--no-wait saves nothing: leave out --output, or fetch it later with tasks download"
        )
    if output:
        check_target(output)
    from turnout.cli.client import ApiClient, VideoOrder
    from turnout.cli.display import open_display

    order = VideoOrder(*_with_image({k: v for k, v in fields.items() if v is not None}, image), priority)
    started = time.monotonic()
    with ApiClient(common.server()) as client:
        with open_display(quiet=as_json) as display:
            run = _Run(client, display, order, None if timeout is None else started + timeout)
            video = run.submit()
            display.show(video)
            if no_wait:
                path = None
            else:
                video = run.wait_ended(video)
                path = run.save(video, output) if video.status == "completed" else None
        took_s = time.monotonic() - started
    if as_json:
        print(json.dumps({**video.raw, "path": path and str(path), "took_s": round(took_s, 3)}))
    elif no_wait:
        print(video.id)
        print(f"watch it with: turnout tasks watch {video.id}", file=sys.stderr)
    elif path:
        print(f"{path}\nseed {video.seed}, took {duration(took_s)}")
    if not no_wait and video.status != "completed":
        if not as_json:
            print(
                f"error: the task {video.status}: {one_line(video.error or 'no reason given')}",
                file=sys.stderr,
            )
        raise typer.Exit(1)


@dataclass(slots=True)
class _Run:
    """One submission and its task. Ctrl-C at any point before the end cancels the task and leaves with 130."""

    client: "ApiClient"
    display: "Display"
    order: "VideoOrder"
    deadline: float | None

    def submit(self) -> "VideoView":
        submission = self.client.submission(self.order, f"cli-{secrets.token_urlsafe(18)}")
        try:
            return self._send(submission)
        except KeyboardInterrupt:
            self.display.note("cancelling …")
            try:
                # It may have arrived: the same key gives that task again, and then there is something to cancel.
                self._cancel(self.client.submit(submission))
            except TurnoutError as err:
                self.display.note(f"could not learn whether the task was accepted: {err.message}")
            raise typer.Exit(130) from None

    def wait_ended(self, video: "VideoView") -> "VideoView":
        from turnout.cli.follow import Follower

        try:
            return Follower(self.client, video, self.display, deadline=self.deadline).wait_ended()
        except KeyboardInterrupt:
            self.display.note("cancelling … (Ctrl-C again leaves at once)")
            self._cancel(video)
            raise typer.Exit(130) from None
        except Unavailable as err:
            raise Unavailable(f"{err.message}; the task may go on: turnout tasks watch {video.id}") from err

    def save(self, video: "VideoView", output: Path | None) -> Path:
        return save(self.client, self.display, video.id, output or Path(f"{video.id}.mp4"))

    def _send(self, submission: "httpx.Request") -> "VideoView":
        from turnout.cli.client import NoServer
        from turnout.cli.follow import RetryWindow

        patience = RetryWindow(self.display)
        sent = False
        while True:
            try:
                video = self.client.submit(submission)
                patience.worked()
                return video
            except NoServer as err:
                if not sent:
                    raise
                patience.wait(err)
            except Unavailable as err:
                sent = True
                patience.wait(err)

    def _cancel(self, video: "VideoView") -> None:
        from turnout.cli.follow import RetryWindow

        patience = RetryWindow(self.display, CANCEL_PATIENCE_S)
        while True:
            try:
                now = self.client.cancel(video.id)
                self.display.note(f"{video.id} {now.status}")
                return
            except Unavailable as err:
                try:
                    patience.wait(err)
                except Unavailable:
                    self.display.note(
                        f"could not cancel; the task may go on: turnout tasks cancel {video.id}"
                    )
                    return
            except TurnoutError as err:  # it has ended already, or is gone
                self.display.note(err.message)
                return


def save(
    client: "ApiClient", display: "Display", video_id: str, target: Path, variant: str = "video"
) -> Path:
    """Downloads with patience; each try starts afresh, and only a whole file gets the name."""
    from turnout.cli.follow import RetryWindow

    patience = RetryWindow(display)
    while True:
        try:
            client.download(video_id, variant, target)
            return target
        except Unavailable as err:
            patience.wait(err)
        except OSError as err:
            raise TurnoutError(
                f"{target}: {err.strerror}; fetch it later: turnout tasks download {video_id}"
            ) from err


def check_target(path: Path) -> None:
    """Refuses before the work is done what would fail after it."""
    if path.is_dir():
        raise InvalidRequest(f"{path} is a directory: give a file name", "output")
    if not path.resolve().parent.is_dir():
        raise InvalidRequest(f"{path.resolve().parent} is not there: make it first", "output")
    if not os.access(path.resolve().parent, os.W_OK):
        raise InvalidRequest(f"{path.resolve().parent} is not writable", "output")


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
