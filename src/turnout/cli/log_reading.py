"""The lines of a service's log files: what they say, in order of time, as people read them. Only `read_new` reads files."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from turnout.cli.formatting import one_line

_OWN = ("timestamp", "level", "event", "role")  # shown in front, or known from the file
_PIECE_BYTES = 4 * 2**20


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


def readable(line: LogLine) -> str:
    """`04:12:06.382 gateway  task submitted  model=wan-tiny-t2v`; foreign lines as they are."""
    clock = line.at[11:23]
    if not line.fields:
        return f"{clock:12} {line.part}  {one_line(line.text)}"
    level = str(line.fields.get("level", "info"))
    shown = "" if level == "info" else f"{level.upper()} "
    rest = " ".join(_fields(line.fields))
    return f"{clock:12} {line.part}  {shown}{one_line(str(line.fields.get('event', '')))}  {rest}".rstrip()


def _fields(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if name not in _OWN and value is not None:
            yield f"{one_line(name)}={one_line(value if isinstance(value, str) else json.dumps(value))}"
