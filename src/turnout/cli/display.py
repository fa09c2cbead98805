"""Shows a task's progress: a live bar on a terminal, plain lines elsewhere, nothing with --json.

Progress goes to standard error, so that standard output has results only."""

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, TextIO

from turnout.cli.follow import Display
from turnout.cli.formatting import ahead, duration, of_bytes, one_line
from turnout.cli.server_answers import VideoAnswer
from turnout.tasks.task_rules import Stage, State

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_LINE_S = 2.0


def headline(video: VideoAnswer) -> str:
    """`queued, next in line (waking: loading on gpu1)`, `denoising`: the status or stage, without figures that change at each step."""
    if video.status == State.QUEUED:
        why = f" ({one_line(video.waiting_for.words)})" if video.waiting_for else ""
        return f"queued, {ahead(video.queue_position)}{why}"
    if video.status == State.IN_PROGRESS:
        return one_line(video.stage or "starting")
    return one_line(video.status)


def figures(video: VideoAnswer) -> str:
    """`step 4 of 20, about 12 s left`; empty when there are none."""
    found: list[str] = []
    if video.status == State.IN_PROGRESS and video.stage == Stage.DENOISING and video.steps:
        found.append(f"step {video.step} of {video.steps}")
    if video.stage == Stage.LOADING and video.load_bytes:
        found.append(of_bytes(video.loaded_bytes or 0, video.load_bytes))
    if video.eta_s is not None and round(video.eta_s) > 0 and not video.ended:
        found.append(f"about {duration(video.eta_s)} left")
    return ", ".join(found)


class Silent:
    """For --json: shows no progress; notes still go to standard error."""

    def show(self, video: VideoAnswer) -> None:
        pass

    def note(self, line: str) -> None:
        print(one_line(line), file=sys.stderr, flush=True)


class PlainLines:
    """One line at each change of stage, and every two seconds while steps go by."""

    def __init__(self, out: TextIO, *, label: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._label = f"{label}: " if label else ""
        self._clock = clock
        self._headline: str = ""
        self._figures = ""
        self._said_at = 0.0

    def show(self, video: VideoAnswer) -> None:
        head, more = headline(video), figures(video)
        due = more != self._figures and self._clock() - self._said_at >= QUIET_LINE_S
        if head == self._headline and not due:
            return
        self._headline, self._figures = head, more
        self._say(f"{head}, {more}" if more else head)

    def note(self, line: str) -> None:
        self._say(one_line(line))

    def break_silence(self) -> None:
        if not self._said_at:
            self._say("waiting for the server to answer")

    def _say(self, line: str) -> None:
        self._said_at = self._clock()
        print(self._label + line, file=self._out, flush=True)


class Bar:
    """Rich redraws it in a thread of its own, so the elapsed time runs even while the server is silent."""

    def __init__(self, progress: "Progress", bar: "TaskID") -> None:
        self._progress = progress
        self._bar = bar

    def show(self, video: VideoAnswer) -> None:
        running = video.status == State.IN_PROGRESS and video.progress > 0
        self._progress.update(
            self._bar,
            description=headline(video),
            total=100 if running or video.ended else None,  # None: how long it will take is not known yet
            completed=video.progress,
            figures=figures(video),
        )

    def note(self, line: str) -> None:
        self._progress.console.print(one_line(line), markup=False, highlight=False)


def is_live(out: TextIO) -> bool:
    return out.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def open_display(*, quiet: bool) -> Generator[Display]:
    if quiet:
        yield Silent()
        return
    if not is_live(sys.stderr):
        lines = PlainLines(sys.stderr)
        silence = Timer(QUIET_LINE_S, lines.break_silence)
        silence.daemon = True
        silence.start()
        try:
            yield lines
        finally:
            silence.cancel()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        yield Bar(progress, progress.add_task("submitting", total=None, figures=""))
