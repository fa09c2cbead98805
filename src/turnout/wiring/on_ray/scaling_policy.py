"""How Serve's controller decides whether a slot's gang is there: by its model's queue, which the manager tells.

Serve pickles this module's code into its controller, so it holds nothing but the class; no Redis address and no
secret is in what Serve shows of it. Serve calls it many times a second: it only looks at what a thread learned.
"""

from typing import Any


class GangPolicy:
    """For one slot: 1 while its gang is wanted and for `idle_s` after, 0 otherwise. Keeps what is there while the manager is silent."""

    def __init__(self, model: dict[str, Any], slot: int) -> None:
        import threading

        from turnout.wiring.on_ray.queue_cache import QueueCache, model_from

        self._model = model_from(model)
        self._slot = slot
        self._idle_since: float | None = None
        self._queues = QueueCache()
        threading.Thread(target=self._queues.follow, name=f"queue {slot}", daemon=True).start()

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        import time

        from turnout.domain.slots import wants_gang

        there: int = context.target_num_replicas
        queue = self._queues.latest(self._model.name)
        if queue is None:
            return there, {}
        if wants_gang(self._model, self._slot, queue):
            self._idle_since = None
            return 1, {}
        if queue.yields or not there:
            return 0, {}
        self._idle_since = self._idle_since or time.monotonic()
        return int(time.monotonic() - self._idle_since < self._model.idle_s), {}
