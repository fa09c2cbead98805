"""One submission and its task, from the first request to the task's end."""

import secrets
from dataclasses import dataclass

import httpx
import typer

from turnout.cli.client import ApiClient, NoServer, VideoOrder
from turnout.cli.follow import Display, Follower, RetryWindow
from turnout.cli.formatting import one_line
from turnout.cli.server_answers import VideoAnswer
from turnout.errors import TurnoutError, Unavailable

CANCEL_S = 10.0


@dataclass(slots=True)
class GenerateRun:
    """Ctrl-C at any point before the end cancels the task and leaves with 130."""

    client: ApiClient
    display: Display
    order: VideoOrder
    deadline: float | None

    def submit(self) -> VideoAnswer:
        submission = self.client.submission(self.order, f"cli-{secrets.token_urlsafe(18)}")
        if self.order.fields.get("enhance"):
            self.display.note("a chat model rewrites the prompt; it may have to wake first …")
        try:
            video = self._send(submission)
            if video.original_prompt is not None:
                self.display.note(f"prompt: {one_line(video.prompt)}")
            if video.notice:
                self.display.note(one_line(video.notice))
            return video
        except KeyboardInterrupt:
            self.display.note("cancelling …")
            try:
                # It may have arrived: the same key gives that task again, and then there is something to cancel.
                self._cancel(self.client.submit(submission))
            except TurnoutError as err:
                self.display.note(f"could not learn whether the task was accepted: {err.message}")
            raise typer.Exit(130) from None

    def wait_ended(self, video: VideoAnswer) -> VideoAnswer:
        try:
            return Follower(self.client, video, self.display, deadline=self.deadline).wait_ended()
        except KeyboardInterrupt:
            self.display.note("cancelling … (Ctrl-C again leaves at once)")
            self._cancel(video)
            raise typer.Exit(130) from None
        except Unavailable as err:
            raise Unavailable(f"{err.message}; the task may go on: turnout tasks watch {video.id}") from err

    def _send(self, submission: httpx.Request) -> VideoAnswer:
        """Retries, except when the very first try finds no server at all."""
        try:
            return self.client.submit(submission)
        except NoServer:
            raise
        except Unavailable as err:
            retries = RetryWindow(self.display.note)
            retries.wait(err)
            return retries.call(lambda: self.client.submit(submission))

    def _cancel(self, video: VideoAnswer) -> None:
        retries = RetryWindow(self.display.note, CANCEL_S)
        try:
            now = retries.call(lambda: self.client.cancel(video.id))
            self.display.note(f"{video.id} {now.status}")
        except Unavailable:
            self.display.note(f"could not cancel; the task may go on: turnout tasks cancel {video.id}")
        except TurnoutError as err:  # it has ended already, or is gone
            self.display.note(err.message)
