"""The first bar: 200 English prompts for combinations that training never shows, as they were when it was set.

They are kept in a file, with the clips they stand for, so that a wider world and other wordings do not move the bar.
"""

from __future__ import annotations

import json
from pathlib import Path

from training.world import RGB, Backdrop, Clip, Thing


def first_bar() -> list[tuple[Clip, str]]:
    rows = json.loads((Path(__file__).parent / "first_bar.json").read_text())
    return [(_clip(row), row["prompt"]) for row in rows]


def _clip(row: dict) -> Clip:
    things = tuple(Thing(**{**thing, "tint": _rgb(thing["tint"])}) for thing in row["things"])
    first, second = (_rgb(tint) for tint in row["tints"])
    return Clip(things, Backdrop(**row["backdrop"]), (first, second), row["layout"])


def _rgb(values: list[float]) -> RGB:
    r, g, b = values
    return r, g, b
