"""Figures and how they are shown: percentiles, one aligned table for each benchmark, progress on stderr."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_BEGAN = time.monotonic()

Cell = str | int | float | None


def say(what: str) -> None:
    """A line of progress."""
    print(f"[{time.monotonic() - _BEGAN:5.1f} s] {what}", file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * round(share * 1000) // 1000))
    return ordered[min(rank, len(ordered)) - 1]


@dataclass(slots=True)
class Table:
    """One benchmark's outcome; `notes` say under what conditions the figures hold."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list[Sequence[Cell]])
    notes: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        cells = [list(self.columns), *([_shown(c) for c in row] for row in self.rows)]
        widths = [max(len(row[n]) for row in cells) for n in range(len(self.columns))]
        numeric = [any(isinstance(row[n], int | float) for row in self.rows) for n in range(len(widths))]
        lines = [
            "  ".join(
                c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)
            )
            for row in cells
        ]
        lines.insert(1, "  ".join("-" * w for w in widths))
        body = "\n".join(line.rstrip() for line in lines)
        return "\n".join((self.title, "", body, *(("", *self.notes) if self.notes else ()), ""))

    def as_json(self) -> dict[str, Any]:
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": self.notes}


def _shown(cell: Cell) -> str:
    """Three digits are all that a noisy machine can promise."""
    if cell is None:
        return "-"
    if not isinstance(cell, float):
        return str(cell)
    if abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}" if abs(cell) >= 0.1 else f"{cell:.3f}"
