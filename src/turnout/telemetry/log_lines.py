"""The lines of a service's log files: what they say, in order of time. Only what is called `read` or `find` touches files."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

_PIECE_BYTES = 4 * 2**20
_END_BYTES = 1 << 20
_MOST_BYTES = 64 << 20
"""Of all files together that one look for a task reads: about a second of a processor."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """`at` is ISO time; a line that is not ours has that of the one before it in its file."""

    at: str
    part: str
    text: str
    fields: dict[str, Any]

    def is_of(self, task: str) -> bool:
        return self.fields.get("task") == task or task in self.text


@dataclass(slots=True)
class LogFile:
    """One file, read from where the last reading ended; one that was cut meanwhile is read from its start."""

    path: Path
    part: str
    position: int = 0
    _last_at: str = ""
    _rest: bytes = field(default=b"")

    def read_new(self) -> list[LogLine]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if size < self.position:
                    self.position, self._rest = 0, b""
                file.seek(self.position)
                found = self._rest + file.read(_PIECE_BYTES)
                self.position = file.tell()
        except OSError:
            return []
        *whole, self._rest = found.split(b"\n")
        return [self._line(raw.decode(errors="replace")) for raw in whole if raw.strip()]

    def _line(self, raw: str) -> LogLine:
        try:
            parsed: object = json.loads(raw)
        except ValueError:
            parsed = None
        fields = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
        self._last_at = str(fields.get("timestamp", self._last_at))
        return LogLine(self._last_at, self.part, raw, fields)


def find_logs(state_dir: Path) -> list[LogFile]:
    """Every log of a state directory: of the parts, and of what its worker runs."""
    paths = sorted((*state_dir.glob("logs/*.log*"), *state_dir.glob("*/logs/*.log*")))
    return [LogFile(path, re.sub(r"\.log(\.1)?$", "", path.name)) for path in paths]


def in_order(lines: Iterable[LogLine]) -> list[LogLine]:
    return sorted(lines, key=lambda line: line.at)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """`parts` are all that have a log here."""

    lines: Sequence[LogLine]
    parts: Sequence[str]


def read_end(state_dir: Path, of: str | None, task: str | None, last: int) -> LogEnd:
    """The last lines: of one part, of all, or of those that are about a task, however far back."""
    files = find_logs(state_dir)
    found: list[LogLine] = []
    left = _MOST_BYTES
    for file in sorted(files, key=_written_at, reverse=True):
        if (of is not None and file.part != of) or left <= 0:
            continue
        size = file.path.stat().st_size if file.path.exists() else 0
        file.position = max(0, size - (_PIECE_BYTES if task is not None else _END_BYTES))
        left -= size - file.position
        lines = file.read_new()
        if file.position and size > _END_BYTES and lines and not lines[0].fields:
            lines = lines[1:]  # it begins in the middle
        found += lines if task is None else [line for line in lines if line.is_of(task)]
    return LogEnd(in_order(found)[-last:], sorted({file.part for file in files}))


def _written_at(file: LogFile) -> float:
    try:
        return file.path.stat().st_mtime
    except OSError:
        return 0.0
