"""Saves what a task made, under a name of the user's choice."""

import os
from pathlib import Path

from turnout.cli.client import ApiClient
from turnout.cli.follow import Display, RetryWindow
from turnout.errors import InvalidRequest, TurnoutError


def save(client: ApiClient, display: Display, video_id: str, target: Path, variant: str = "video") -> Path:
    """Retries while the server is away. Each try starts afresh, and only a whole file gets the name."""
    try:
        RetryWindow(display.note).call(lambda: client.download(video_id, variant, target))
    except OSError as err:
        raise TurnoutError(
            f"{target}: {err.strerror}; fetch it later: turnout tasks download {video_id}"
        ) from err
    return target


def check_target(path: Path) -> None:
    """Refuses before the work is done what would fail after it."""
    folder = path.resolve().parent
    if path.is_dir():
        raise InvalidRequest(f"{path} is a directory: give a file name", "output")
    if not folder.is_dir():
        raise InvalidRequest(f"{folder} is not there: make it first", "output")
    if not os.access(folder, os.W_OK):
        raise InvalidRequest(f"{folder} is not writable", "output")
