"""Log lines as HTTP shows them."""

from typing import Any, Literal

from pydantic import BaseModel

from turnout.telemetry.log_lines import LogEnd, LogLine

_OWN = ("timestamp", "level", "event", "role")
_MAX_TEXT = 4_000


class LogLineShown(BaseModel):
    """`event` is what happened; of a line that is not Turnout's own, the line. `fields` are what belongs to it."""

    at: str
    part: str
    level: str
    event: str
    fields: dict[str, Any]


class LogLines(BaseModel):
    """Oldest first. `parts` are those with a log on the gateway's machine: none where logs are kept elsewhere."""

    object: Literal["list"] = "list"
    data: list[LogLineShown]
    parts: list[str]


def log_lines_of(end: LogEnd) -> LogLines:
    return LogLines(data=[_shown(line) for line in end.lines], parts=list(end.parts))


def _shown(line: LogLine) -> LogLineShown:
    fields = line.fields
    return LogLineShown(
        at=line.at,
        part=line.part,
        level=str(fields.get("level", "info")),
        event=str(fields.get("event", "") if fields else line.text)[:_MAX_TEXT],
        fields={
            name: value if isinstance(value, int | float | bool) else str(value)[:_MAX_TEXT]
            for name, value in fields.items()
            if name not in _OWN and value is not None
        },
    )
