"""The stream that wakes the manager. It carries only the names of what changed: what is so now is read from its own key.
So a missed entry delays, and never misleads."""

from typing import Any, Literal

from turnout.store.connection import RedisConnection

MAX_NEWS = 10_000


def tell_manager(link: RedisConnection, pipe: Any, kind: Literal["m", "w", "g"], name: str) -> None:
    """Adds to the pipe that a model, worker or gateway of that name changed."""
    pipe.xadd(link.keys.news(), {kind: name}, maxlen=MAX_NEWS, approximate=True)
