"""Usage and costs as a table for spreadsheets. Pure."""

import csv
import io
from collections.abc import Iterable

from turnout.tenants.gpu_time_rules import GpuState
from turnout.tenants.usage_json import CostShown, UsageList, UsageShown
from turnout.tenants.usage_rules import UsageBy

_STATES = tuple(GpuState)
_AMOUNTS = (
    *(f"gpu_seconds_{s}" for s in ("held", *_STATES)),
    *(f"cost_{s}" for s in ("held", *_STATES)),
    "currency",
)
_ROW_HEADINGS = (
    *("day", "tenant", "model", "requests", "prompt_tokens", "completion_tokens", "videos", "attempts"),
    *("video_seconds", "render_seconds", "work_seconds"),
    *_AMOUNTS,
)
_LINE_HEADINGS = ("known_as", "requests", "tokens", "videos", "attempts", *_AMOUNTS, "cost_per_video", "why")


def usage_csv(used: UsageList, by: UsageBy | None) -> str:
    """The rows by day, tenant and model, or the lines that `by` names; the first line has the names of the columns."""
    if by is None:
        return _written(_ROW_HEADINGS, (_row(row, used.currency) for row in used.data))
    lines = {UsageBy.MODEL: used.models, UsageBy.WORKER: used.workers, UsageBy.TENANT: used.tenants}[by]
    return _written((by.value, *_LINE_HEADINGS), (_line(line, used.currency) for line in lines))


def _row(row: UsageShown, currency: str) -> list[object]:
    own = [getattr(row, name) for name in _ROW_HEADINGS[: -len(_AMOUNTS)]]
    return [*own, *_amounts(row, currency)]


def _line(line: CostShown, currency: str) -> list[object]:
    own = [line.name, line.known_as, line.requests, line.tokens, line.videos, line.attempts]
    return [*own, *_amounts(line, currency), line.cost_per_video, line.why]


def _amounts(of: UsageShown | CostShown, currency: str) -> list[object]:
    both = (of.gpu_seconds, of.cost)
    return [*(getattr(one, state) for one in both for state in ("held", *_STATES)), currency]


def _written(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(headings)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    """A name that a spreadsheet would take for a formula is text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value
