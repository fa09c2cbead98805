"""Finds the class that renders a model's clips: one of ours, one that a package registers, or one by import path."""

import importlib
import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

from turnout.engines.base import EngineSetup, VideoEngine
from turnout.errors import Misconfigured

GROUP = "turnout.engines"
"""The entry point group of packages that bring an engine."""

OURS = {"wan": "turnout.engines.wan.load:make_engine", "ltx": "turnout.engines.ltx:LtxEngine"}
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def engine_path(name: str) -> str:
    """The import path `module:attribute` of the engine that a model declares."""
    if name in OURS:
        return OURS[name]
    if _PATH.fullmatch(name):
        return name
    found = [point.value for point in entry_points(group=GROUP) if point.name == name]
    if not found or not _PATH.fullmatch(found[0]):
        known = sorted({*OURS, *(point.name for point in entry_points(group=GROUP))})
        raise Misconfigured(f"no video engine {name[:80]!r} is installed here; known: {', '.join(known)}")
    return found[0]


def find_engine(name: str) -> Callable[[EngineSetup], VideoEngine]:
    """What makes the engine. Imports it, which may take seconds."""
    module, _, attribute = engine_path(name).partition(":")
    try:
        return cast(
            "Callable[[EngineSetup], VideoEngine]", getattr(importlib.import_module(module), attribute)
        )
    except (ImportError, AttributeError) as err:
        raise Misconfigured(f"the video engine {name} cannot be imported: {err}") from err
