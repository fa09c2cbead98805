"""What Serve's controller does with policies: makes new ones at every deployment, and says of none when it ends."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from turnout.fleet.hosts.ray import queue_cache
from turnout.fleet.hosts.ray.queue_cache import QueueCache, queues_of
from turnout.fleet.hosts.ray.scaling_policy import GangPolicy
from turnout.fleet.ray_rules import QueueState


class AskedManager:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.answers: list[Future[dict[str, QueueState]]] = []
        self.queues = SimpleNamespace(remote=self._ask)

    def _ask(self) -> Any:
        self.answers.append(Future())
        return SimpleNamespace(future=lambda: self.answers[-1])


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> AskedManager:
    found = AskedManager()
    monkeypatch.setattr(queue_cache, "find_manager", lambda _: found)
    monkeypatch.setattr(queue_cache, "_ASK_EVERY_S", 0.0)
    queues_of.cache_clear()
    return found


def there(replicas: int) -> Any:
    return SimpleNamespace(target_num_replicas=replicas)


def test_policies_of_any_number_of_deployments_share_one_question_and_have_no_thread(
    manager: AskedManager,
) -> None:
    before = threading.active_count()
    policies = [GangPolicy("turnout", "m", slot % 4) for slot in range(100)]
    assert all(policy(there(0)) == (0, {}) for policy in policies)
    assert len(manager.answers) == 1
    assert threading.active_count() == before


def test_a_slot_follows_the_manager_and_keeps_what_is_there_until_it_has_spoken(
    manager: AskedManager,
) -> None:
    zero, one = (GangPolicy("turnout", "m", slot) for slot in (0, 1))
    assert [zero(there(1))[0], one(there(0))[0]] == [1, 0]
    manager.answers[-1].set_result({"m": QueueState(wanted=frozenset({1}))})
    assert [zero(there(1))[0], one(there(0))[0]] == [0, 1]


def test_a_manager_that_fails_is_looked_for_again(
    manager: AskedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = QueueCache("turnout")
    assert cache.latest("m") is None
    manager.answers[-1].set_exception(RuntimeError("it died"))
    assert cache.latest("m") is None
    cache.latest("m")
    manager.answers[-1].set_result({"m": QueueState(waiting=1)})
    assert cache.latest("m") == QueueState(waiting=1)
    monkeypatch.setattr(queue_cache, "_ANSWER_S", -1.0)
    assert cache.latest("m") is None, "what is old is not known"
