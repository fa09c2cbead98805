"""Words and numbers as people read them. Pure."""

from collections.abc import Sequence
from datetime import datetime


def one_line(text: str) -> str:
    """Text from elsewhere, made safe for a terminal: one line, no control characters."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def duration(seconds: float) -> str:
    """`12 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def ago(at: float, now: float) -> str:
    return f"{duration(now - at)} ago"


def ahead(position: int | None) -> str:
    """What a queue position (tasks served before this one) means to the one who waits."""
    match position:
        case None:
            return "waiting"
        case 0:
            return "next in line"
        case 1:
            return "1 task ahead"
        case _:
            return f"{position} tasks ahead"


def shorten(text: str, width: int) -> str:
    line = one_line(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def clock_time(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, the last one as long as it likes."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (headings, *rows)
    ]
    return "\n".join(lines)
