"""How a model stands, in words for a user, and when an operator should look."""

from dataclasses import replace

import pytest

from turnout.fleet.status_rules import (
    NOT_LOOKED_AT,
    REGISTERED,
    ModelState,
    ModelStatus,
    StatusCause,
    describe,
    troubled,
    why_tasks_wait,
)

READY, STARTING, STOPPING = ModelState.READY, ModelState.STARTING, ModelState.STOPPING
WAITING, FAILED = ModelState.WAITING, ModelState.FAILED


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ModelStatus(READY, replicas=1), "ready: 1 replica"),
        (ModelStatus(READY, replicas=2), "ready: 2 replicas"),
        (ModelStatus(STARTING, worker="w", for_s=3.2), "starting on w for 3 s"),
        (ModelStatus(STARTING, worker="w", for_s=3.2, waking=True), "waking on w for 3 s"),
        (ModelStatus(STARTING, worker="w", for_s=3.2, reason="loading 40 %"), "starting on w for 3 s (loading 40 %)"),
        (ModelStatus(ModelState.ASLEEP), "asleep"),
        (ModelStatus(ModelState.STOPPED), "not started: nobody asks for it"),
        (REGISTERED, "registered"),
        (NOT_LOOKED_AT, "the manager has not looked at it yet"),
        (ModelStatus(ModelState.STOPPED, StatusCause.RUN_BY_RAY), "its gangs run on Ray"),
        (ModelStatus(ModelState.STOPPED, StatusCause.RUN_BY_OTHERS), "its gangs are started by others"),
        (ModelStatus(ModelState.STOPPED, StatusCause.RUN_BY_JOBS), "each task is a job on Kubernetes"),
        (ModelStatus(ModelState.STOPPED, StatusCause.RUN_BY_RAY, reason="x broke"), "its gangs run on Ray: x broke"),
        (ModelStatus(READY, StatusCause.RUN_BY_OTHERS, replicas=1), "ready: 1 replica"),
        (ModelStatus(STOPPING, worker="w", for_s=7), "stopping on w for 7 s"),
        (ModelStatus(STOPPING, worker="w", reason="idle"), "leaving w (idle)"),
        (
            ModelStatus(STOPPING, worker="w", reason="room for b", busy=2),
            "leaving w (room for b, 2 requests under way)",
        ),
        (ModelStatus(FAILED, reason="it needs 4 GPUs"), "it needs 4 GPUs"),
        (ModelStatus(FAILED, failures=1, reason="x", retry_s=4.6), "failed once: x; next try in 5 s"),
        (ModelStatus(FAILED, failures=2, reason="x", retry_s=4), "failed twice: x; next try in 4 s"),
        (ModelStatus(FAILED, failures=3, reason="x", retry_s=4), "failed 3 times: x; next try in 4 s"),
        (ModelStatus(FAILED, StatusCause.WORKER_SILENT, worker="w"), "worker w does not answer"),
        (ModelStatus(WAITING, StatusCause.NO_WORKER, for_s=3), "waiting for 3 s: no worker has joined"),
        (ModelStatus(WAITING, StatusCause.NO_WORKER_ALIVE), "waiting for 0 s: no worker is alive"),
        (ModelStatus(WAITING, StatusCause.ROOM_BEING_MADE, by=("a", "b")), "waiting for 0 s: a, b makes room for it"),
        (ModelStatus(WAITING, StatusCause.MEMORY_BEING_FREED), "waiting for 0 s: memory is being freed"),
        (ModelStatus(WAITING, StatusCause.MEMORY_HELD), "waiting for 0 s: other models hold the memory it needs"),
        (
            ModelStatus(WAITING, StatusCause.MEMORY_HELD, by=("a", "b")),
            "waiting for 0 s: the memory it needs is held by a, b",
        ),
        (
            ModelStatus(WAITING, StatusCause.WORKER_UNSETTLED, worker="w"),
            "waiting for 0 s: w still stops replicas that were placed elsewhere",
        ),
    ],
)  # fmt: skip
def test_a_status_is_said_in_words(status: ModelStatus, words: str) -> None:
    assert describe(status) == words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ModelStatus(READY, replicas=1), None),
        (ModelStatus(STARTING, worker="w"), "waking: loading on w"),
        (ModelStatus(STARTING, worker="w", reason="loading 40 %"), "waking: loading 40 % on w"),
        (ModelStatus(ModelState.ASLEEP), "waking"),
        (ModelStatus(ModelState.STOPPED), "waking"),
        (NOT_LOOKED_AT, "waking: the manager has not looked at it yet"),
        (
            ModelStatus(ModelState.STOPPED, StatusCause.RUN_BY_OTHERS),
            "waiting for a gang: its gangs are started by others",
        ),
        (
            ModelStatus(ModelState.STOPPED, StatusCause.RUN_BY_RAY, reason="Ray starts it"),
            "waiting for a gang: Ray starts it",
        ),
        (ModelStatus(WAITING, StatusCause.NO_WORKER), "waking: no worker has joined"),
        (
            ModelStatus(WAITING, StatusCause.MEMORY_HELD, by=("a",)),
            "waking: the memory it needs is held by a",
        ),
        (ModelStatus(STOPPING, worker="w", reason="idle"), "waking: it has to leave w first"),
        (ModelStatus(FAILED, failures=2, reason="x"), "failed twice: x; it will be tried again"),
        (ModelStatus(FAILED, reason="it needs 4 GPUs"), "it needs 4 GPUs"),
        (ModelStatus(FAILED, StatusCause.WORKER_SILENT, worker="w"), "worker w does not answer"),
    ],
)
def test_why_tasks_wait_is_said_without_times(status: ModelStatus, words: str | None) -> None:
    assert why_tasks_wait(status) == words
    later = replace(status, for_s=99.0, retry_s=99.0)
    assert why_tasks_wait(later) == words


def test_an_operator_should_look_at_failures_and_where_nobody_can_run_the_model() -> None:
    assert {state for state in ModelState if troubled(state, None)} == {FAILED}
    causes = {cause for cause in StatusCause if troubled(WAITING, cause)}
    assert causes == {StatusCause.NO_WORKER, StatusCause.NO_WORKER_ALIVE, StatusCause.NOT_LOOKED_AT}
