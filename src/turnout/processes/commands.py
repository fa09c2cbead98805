"""Runs any program as a tethered child process, each with a log of its own that outlives it for a while (`log_files`)."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnout.errors import Unavailable
from turnout.processes.child import Child
from turnout.processes.environment_rules import for_computing


class LoggedChild(Child):
    def log_tail(self, limit_bytes: int) -> str:
        return tail(self.log, limit_bytes)


class LocalCommands:
    """Logs lie in `logs`. Engines inherit what `environment_rules` names, and `more` by name."""

    def __init__(self, logs: Path, more: Sequence[str] = ()) -> None:
        self._logs = logs
        self._more = more

    async def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str]) -> LoggedChild:
        log = self._logs / f"{name}.log"
        try:
            inherited = for_computing(os.environ, self._more)
            child = await LoggedChild.start(name, argv, log=log, environ=environ, inherited=inherited)
        except OSError as err:
            raise Unavailable(f"{argv[0]} did not start: {err.strerror or err}") from err
        assert isinstance(child, LoggedChild)
        return child


def tail(log: Path, limit_bytes: int) -> str:
    """The end of what was written, also if the log was cut a moment ago."""
    end = _end(log, limit_bytes)
    if len(end) < limit_bytes:
        end = _end(log.with_suffix(".log.1"), limit_bytes - len(end)) + end
    text = end.decode(errors="replace")
    return text if len(end) < limit_bytes else text.partition("\n")[2]


def _end(path: Path, limit_bytes: int) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - limit_bytes))
        return file.read(limit_bytes)
    return b""
