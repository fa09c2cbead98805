"""Words and numbers as people read them. Pure, but for the terminal's width."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from unicodedata import east_asian_width


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


def of_bytes(done: int, total: int) -> str:
    """`1.5 of 28.6 GB`, `12 of 83 MB`: in the unit of the whole."""
    if total < 1e9:
        return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
    return f"{done / 1e9:.1f} of {total / 1e9:.1f} GB"


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


def done(as_json: bool, words: str, **fields: object) -> str:
    """What a command has done, for people or for programs."""
    return json.dumps(fields) if as_json else words


def note_of_reach(url: str, whose: str) -> str | None:
    """What is to be said beside a URL that is `whose`, as "for other machines", and leads nowhere from there."""
    from turnout.store.address_rules import is_loopback_name

    if not is_loopback_name(url.partition("://")[2]):
        return None
    return f"{url} is this machine's own: {whose} set public_url, or call with --url"


def columns(text: str) -> int:
    """How wide a terminal shows it: a Chinese letter takes two columns."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Columns as wide as their widest cell, the last one as long as it likes. Where the others are too wide for the terminal
    (or for `width`), each row is a block of lines."""
    widths = [max(map(columns, column)) for column in zip(headings, *rows, strict=True)]
    room = width or _terminal_width()
    if room is not None and rows and sum(widths[:-1]) + 2 * len(widths) > room:
        name = max(map(len, headings))
        blocks = [
            "\n".join(f"{h.ljust(name)}  {c}".rstrip() for h, c in zip(headings, row, strict=True))
            for row in rows
        ]
        return "\n\n".join(blocks)
    lines = [
        "  ".join(c + " " * (w - columns(c)) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in (headings, *rows)
    ]
    return "\n".join(lines)


def share_of(version_of: str | None, share: float | None) -> str:
    """What is said of a model that is a version of another one, behind its status."""
    return f" ({share or 0:.4g} of {one_line(version_of)})" if version_of else ""


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def field_list(fields: Mapping[str, object]) -> str:
    """One line a field, its value as text or JSON; times are shown as a clock shows them."""
    names = {name: one_line(name) for name in fields}
    width = max(map(len, names.values()), default=0)
    return "\n".join(f"{names[name].ljust(width)}  {_value(name, value)}" for name, value in fields.items())


def _value(name: str, value: object) -> str:
    if name.endswith("_at") and isinstance(value, int | float):
        return clock_time(value)
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
