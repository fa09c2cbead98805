"""The rule book of a task, driven by any order of events."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import make_task

from turnout.domain.tasks import (
    TERMINAL,
    Cancelled,
    Checkpointed,
    Claimed,
    Event,
    Expired,
    Failed,
    Finished,
    GangId,
    Interrupted,
    Previewed,
    Progressed,
    Result,
    Stage,
    State,
    Submitted,
    Task,
    TaskFailure,
    evolve,
)

RESULT = Result("v", "t", "s", 1)
attempts = st.integers(0, 5)
at = st.just(10.0)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Submitted, at),
    st.builds(Claimed, at, attempts, st.just(GangId("g"))),
    st.builds(Progressed, at, attempts, st.sampled_from(Stage), st.integers(0, 9), st.just(9)),
    st.builds(Previewed, at, attempts, st.integers(0, 9), st.just("p")),
    st.builds(Checkpointed, at, attempts, st.integers(0, 9), st.just("c")),
    st.builds(Interrupted, at, attempts, st.just("died"), st.booleans()),
    st.builds(Finished, at, attempts, st.just(RESULT)),
    st.builds(Failed, at, attempts, st.just(TaskFailure("x", "y"))),
    st.builds(Cancelled, at),
    st.builds(Expired, at),
)


@given(st.lists(events, max_size=40))
def test_any_order_of_events_keeps_the_rules(story: list[Event]) -> None:
    task = make_task()
    for event in story:
        after = evolve(task, event)
        if task.state in TERMINAL:
            assert after is task, "a terminal state never changes"
        carried = getattr(event, "attempt", None)
        if carried is not None and not isinstance(event, Claimed) and carried != task.attempt:
            assert after is task, "an older or unknown attempt writes nothing"
        assert after.attempt in (task.attempt, task.attempt + 1)
        assert task.failures <= after.failures <= task.max_attempts
        assert (after.state is State.COMPLETED) == (after.result is not None)
        assert (after.state is State.FAILED) == (after.failure is not None)
        assert (after.state in TERMINAL) == (after.finished_at is not None)
        assert (after.gang is not None) == (after.state is State.IN_PROGRESS)
        task = after


def claimed(task: Task) -> Task:
    return evolve(task, Claimed(1.0, task.attempt + 1, GangId("g")))


def test_cancel_wins_over_late_finish() -> None:
    task = evolve(claimed(make_task()), Cancelled(2.0))
    assert evolve(task, Finished(3.0, 1, RESULT)) is task


def test_finish_wins_over_late_cancel() -> None:
    task = evolve(claimed(make_task()), Finished(2.0, 1, RESULT))
    assert evolve(task, Cancelled(3.0)) is task


def test_a_zombie_attempt_cannot_finish_what_another_holds() -> None:
    first = claimed(make_task())
    second = claimed(evolve(first, Interrupted(2.0, 1, "lease ran out")))
    assert second.attempt == 2
    assert evolve(second, Finished(3.0, 1, RESULT)) is second


def test_a_task_that_kills_its_gang_every_time_fails_with_the_last_reason() -> None:
    task = make_task(max_attempts=3)
    for number in range(1, 4):
        task = evolve(claimed(task), Interrupted(2.0, number, "rank 1 was killed by SIGSEGV"))
    assert task.state is State.FAILED
    assert task.failure == TaskFailure(
        "attempts_exhausted",
        "All 3 attempts died; the last one at step 0 of 0: rank 1 was killed by SIGSEGV",
    )


def test_a_drained_attempt_is_not_counted_against_the_task() -> None:
    task = make_task(max_attempts=1)
    for number in range(1, 6):
        task = evolve(claimed(task), Interrupted(2.0, number, "drained", counts=False))
        assert task.state is State.QUEUED
    assert task.failures == 0


def test_a_checkpoint_survives_the_attempt_that_made_it() -> None:
    task = evolve(claimed(make_task()), Checkpointed(2.0, 1, 4, "key"))
    task = evolve(task, Interrupted(3.0, 1, "died"))
    assert claimed(task).checkpoint == "key"
    assert replace(claimed(task), checkpoint=None) != claimed(task)
