"""The queues as Serve's controller knows them: asked of the manager, a moment old, never waited for."""

import time
from concurrent.futures import Future
from functools import cache
from typing import Any

from turnout.fleet.hosts.ray.manager_actor import find_manager
from turnout.fleet.ray_rules import QueueState

_ASK_EVERY_S = 0.5
_ANSWER_S = 10.0


class QueueCache:
    """Has no thread: Serve makes new policies at every deployment and says of none when it ends, so who looks asks."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._queues: dict[str, QueueState] = {}
        self._known_at = self._asked_at = float("-inf")
        self._manager: Any = None
        self._answer: Future[dict[str, QueueState]] | None = None

    def latest(self, model: str) -> QueueState | None:
        """None when it is not known, or was known too long ago."""
        now = time.monotonic()
        try:
            self._look(now)
        except Exception:  # noqa: BLE001 - a manager that is away leaves what is known to grow old; it is looked for again
            self._answer = self._manager = None
        return self._queues.get(model) if now - self._known_at < _ANSWER_S else None

    def _look(self, now: float) -> None:
        if self._answer is not None and (self._answer.done() or now - self._asked_at > _ANSWER_S):
            answer, self._answer = self._answer, None
            self._queues, self._known_at = answer.result(timeout=0), now
        if self._answer is None and now - self._asked_at >= _ASK_EVERY_S:
            self._asked_at = now
            self._manager = self._manager or find_manager(self._namespace)
            if self._manager is not None:
                self._answer = self._manager.queues.remote().future()


@cache
def queues_of(namespace: str) -> QueueCache:
    """One for all policies of a process: the controller asks the manager once, however many slots there are."""
    return QueueCache(namespace)
