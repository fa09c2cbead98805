"""Runs any program as a tethered child process, each with a log of its own that outlives it for a while."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnout.adapters.process import Child
from turnout.domain.errors import Unavailable

_LOGS_KEPT = 40


class LoggedChild(Child):
    def log_tail(self, limit_bytes: int) -> str:
        return tail(self.log, limit_bytes)


class LocalCommands:
    """Logs lie in `logs`; the oldest beyond a number are removed when another program starts."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs

    async def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str]) -> LoggedChild:
        prune(self._logs, _LOGS_KEPT)
        log = self._logs / f"{name}.log"
        try:
            child = await LoggedChild.start(name, argv, log=log, environ=environ)
        except OSError as err:
            raise Unavailable(f"{argv[0]} did not start: {err.strerror or err}") from err
        assert isinstance(child, LoggedChild)
        return child


def tail(log: Path, limit_bytes: int) -> str:
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit_bytes))
        text = file.read().decode(errors="replace")
        return text if size <= limit_bytes else text.partition("\n")[2]
    return ""


def prune(logs: Path, keep: int) -> None:
    with contextlib.suppress(OSError):
        found = sorted(logs.glob("*.log"), key=lambda path: path.stat().st_mtime)
        for path in found[: max(0, len(found) - keep)]:
            path.unlink(missing_ok=True)
