"""What /health and /ready answer."""

from typing import Literal

from pydantic import BaseModel

from turnout import __version__


class HealthAnswer(BaseModel):
    status: Literal["ok"] = "ok"
    version: str = __version__


class GangView(BaseModel):
    """A gang, of a worker or on Ray: of which model, on how many machines, and whether all its ranks are there."""

    model: str
    state: Literal["starting", "formed"]
    ranks: int
    nodes: int


class Readiness(BaseModel):
    """`parts` says of each either "ok" or what is wrong; `gangs` are those that are awake."""

    status: Literal["ready", "not_ready"]
    parts: dict[str, str]
    gangs: list[GangView] = []
