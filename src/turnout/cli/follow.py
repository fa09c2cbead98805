"""Follows one task to its end: the event stream while it runs, polling while it waits, retries while the server is
away. Owns the state of the task that the display shows."""

import random
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from turnout.backoff import backoff_s
from turnout.cli.client import QUIET_S, ApiClient, NotAStream
from turnout.cli.formatting import duration
from turnout.cli.server_answers import VideoAnswer, VideoEvent, after
from turnout.errors import Limited, TurnoutError, Unavailable
from turnout.tasks.task_rules import TERMINAL, State

T = TypeVar("T")

POLL_S = 0.5
RETRY_S = 120.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class Display(Protocol):
    def show(self, video: VideoAnswer) -> None: ...
    def note(self, line: str) -> None:
        """Something that the user should know and that is not progress."""
        ...


class TimedOut(TurnoutError):
    """The caller's own time is up; the task goes on."""


class RetryWindow:
    """How long to retry while the server is away, and how often. `note` tells the user."""

    def __init__(self, note: Callable[[str], None], retry_s: float = RETRY_S) -> None:
        self._note = note
        self._retry_s = retry_s
        self._since: float | None = None
        self._failures = 0

    def call(self, request: Callable[[], T]) -> T:
        """The answer to `request`, which is tried again while it raises Unavailable."""
        while True:
            try:
                answer = request()
            except Unavailable as err:
                self.wait(err)
            else:
                self.succeeded()
                return answer

    def succeeded(self) -> None:
        if self._since is not None:
            self._note(f"connected again after {duration(time.monotonic() - self._since)}")
        self._since, self._failures = None, 0

    def wait(self, err: TurnoutError) -> None:
        """Sleeps before the next try; raises `err` when `retry_s` have passed."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._note(f"{err.message.partition(';')[0]}; trying again for up to {duration(self._retry_s)}")
        if now - self._since >= self._retry_s:
            raise err
        self._failures += 1
        pause_s = backoff_s(self._failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, random.random())
        time.sleep(max(pause_s, err.retry_after_s or 0.0))


class Follower:
    def __init__(
        self,
        client: ApiClient,
        video: VideoAnswer,
        display: Display,
        *,
        deadline: float | None = None,
    ) -> None:
        self._client = client
        self._video = video
        self._shown = video
        self._display = display
        self._deadline = deadline
        self._retries = RetryWindow(display.note)
        self._last_event_id: str | None = None
        self._streams = True

    def wait_ended(self) -> VideoAnswer:
        """The task as it ended. Raises TimedOut at the deadline, Unavailable when the server stays away."""
        while True:
            try:
                self._poll()
                if self._video.ended:
                    return self._video
                if self._video.status == State.QUEUED or not self._streams or not self._read_events():
                    time.sleep(min(POLL_S, self._left_s()))
            except (Unavailable, Limited) as err:
                self._left_s()
                self._retries.wait(err)

    def _poll(self) -> None:
        self._video = self._client.video(self._video.id)
        self._retries.succeeded()
        # While events are streamed, this answer would run ahead of them, and the display would jump back.
        if self._video.status != State.IN_PROGRESS or not self._streams:
            self._show(self._video)

    def _read_events(self) -> bool:
        """Whether any event came. Stops when the task has ended or went back to the queue."""
        received = False
        try:
            quiet_s = min(QUIET_S, self._left_s())
            for event in self._client.events(self._video.id, self._last_event_id, quiet_s):
                received = True
                self._left_s()
                self._last_event_id = event.id or self._last_event_id
                self._apply(event)
                if event.name in TERMINAL or event.name == "requeued":
                    break
        except NotAStream:
            self._streams = False
        return received

    def _apply(self, event: VideoEvent) -> None:
        if event.name == "requeued":
            self._display.note(f"back in the queue: {event.reason or 'its attempt was interrupted'}")
        changed = after(self._shown, event)
        if changed.status == State.QUEUED:
            self._shown = changed  # its place in the queue is not known yet; the next answer says it
        elif changed is not self._shown:
            self._show(changed)

    def _show(self, video: VideoAnswer) -> None:
        self._shown = video
        self._display.show(video)

    def _left_s(self) -> float:
        if self._deadline is None:
            return QUIET_S
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimedOut(
                f"time is up; the task goes on. Watch it with: turnout tasks watch {self._video.id}"
            )
        return left
