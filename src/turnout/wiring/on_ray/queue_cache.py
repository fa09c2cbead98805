"""The queues as Serve's controller knows them: asked of the manager on a thread, a moment old, never waited for."""

import time
from collections.abc import Mapping
from typing import Any, cast

import ray as _ray
from pydantic import TypeAdapter

from turnout.domain.slots import QueueState
from turnout.domain.video_model import Model
from turnout.wiring.on_ray.manager_actor import find_manager

ray = cast("Any", _ray)

_ASK_EVERY_S = 0.5
_ANSWER_S = 10.0
_MODEL = TypeAdapter(Model)


def dump_model(model: Model) -> dict[str, Any]:
    """As JSON, which is all that a policy can be given."""
    return _MODEL.dump_python(model, mode="json")


def model_from(values: Mapping[str, Any]) -> Model:
    return _MODEL.validate_python(values)


class QueueCache:
    def __init__(self) -> None:
        self._queues: dict[str, QueueState] = {}
        self._asked_at = float("-inf")

    def latest(self, model: str) -> QueueState | None:
        """None when it is not known, or was known too long ago."""
        return self._queues.get(model) if time.monotonic() - self._asked_at < _ANSWER_S else None

    def follow(self) -> None:
        """For ever; a manager that is away or being restarted leaves what is known to grow old."""
        manager: Any = None
        while True:
            try:
                manager = manager or find_manager()
                if manager is not None:
                    self._queues = ray.get(manager.queues.remote(), timeout=_ANSWER_S)
                    self._asked_at = time.monotonic()
            except Exception:  # noqa: BLE001 - nobody would start this thread again
                manager = None
            time.sleep(_ASK_EVERY_S)
