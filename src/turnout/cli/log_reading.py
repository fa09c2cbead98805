"""A log line as people read it on a terminal."""

import json
from collections.abc import Iterator
from typing import Any

from turnout.cli.formatting import one_line
from turnout.telemetry.log_lines import LogLine

_OWN = ("timestamp", "level", "event", "role")  # shown in front, or known from the file


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
