"""How Serve's controller learns whether a slot's gang is to be there: the manager decides, and tells.

Serve pickles this module's code into its controller, so it holds nothing but the class; no setting, no Redis address and
no secret is in what Serve shows of it. So no change of a setting changes a policy. Serve calls it many times a second: it
only looks at what is known.
"""

from typing import Any


class GangPolicy:
    """For one slot: 1 while its gang is wanted, 0 otherwise. Keeps what is there while the manager is silent."""

    def __init__(self, namespace: str, model: str, slot: int) -> None:
        from turnout.fleet.hosts.ray.queue_cache import queues_of

        self._queues = queues_of(namespace)
        self._model = model
        self._slot = slot

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        queue = self._queues.latest(self._model)
        there: int = context.target_num_replicas
        return there if queue is None else int(self._slot in queue.wanted), {}
