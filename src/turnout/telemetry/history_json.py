"""Queues and history, as operators see them."""

from typing import Literal

from pydantic import BaseModel


class QueueRow(BaseModel):
    """The unfinished tasks of one tenant for one model; `oldest_s` is how long the first of them has been there."""

    model: str
    tenant: str
    waiting: int
    running: int
    oldest_s: float


class QueueList(BaseModel):
    object: Literal["list"] = "list"
    data: list[QueueRow]


class HistoryColumns(BaseModel):
    """Null where nothing is known. `step_seconds` and `first_token_seconds` are means, `wakes` were in the interval."""

    queue_length: list[float | None]
    gpus_busy: list[float | None]
    gpus_idle: list[float | None]
    step_seconds: list[float | None]
    first_token_seconds: list[float | None]
    wakes: list[float | None]


class HistoryShown(BaseModel):
    """`at` are Unix seconds, the oldest first; each column has as many figures."""

    object: Literal["history"] = "history"
    at: list[int]
    columns: HistoryColumns
