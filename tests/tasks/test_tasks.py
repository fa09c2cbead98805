"""The rule book of a task, driven by any order of events."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import make_task

from turnout.tasks.task_rules import (
    NOBODY_TOOK_IT,
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
    st.builds(Expired, at, st.just(NOBODY_TOOK_IT)),
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
        {"attempts": 3, "step": 0, "of": 0, "reason": "rank 1 was killed by SIGSEGV"},
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


def test_what_an_attempt_says_is_kept_and_what_is_over_is_cleared() -> None:
    task = claimed(make_task())
    assert (task.stage, task.started_at, task.gang) == (Stage.LOADING, 1.0, "g")
    task = evolve(task, Progressed(2.0, 1, Stage.DENOISING, 3, 9, 4.5))
    assert (task.stage, task.step, task.of, task.eta_s) == (Stage.DENOISING, 3, 9, 4.5)
    task = evolve(evolve(task, Previewed(3.0, 1, 3, "p")), Checkpointed(3.0, 1, 3, "c"))
    assert (task.preview, task.checkpoint) == ("p", "c")
    waiting = evolve(task, Interrupted(4.0, 1, "died"))
    assert (waiting.state, waiting.failures, waiting.gang, waiting.stage, waiting.eta_s) == (
        State.QUEUED,
        1,
        None,
        None,
        None,
    )
    assert claimed(waiting).started_at == 1.0, "the first start is what a user waited for"
    done = evolve(task, Finished(5.0, 1, RESULT))
    assert (done.state, done.finished_at, done.result, done.preview) == (State.COMPLETED, 5.0, RESULT, "p")
    assert (done.gang, done.stage, done.eta_s, done.checkpoint) == (None, None, None, None)


def test_how_a_task_ended_is_kept_with_the_time() -> None:
    why = TaskFailure("unrenderable", "too long")
    failed = evolve(claimed(make_task()), Failed(5.0, 1, why))
    assert (failed.state, failed.finished_at, failed.failure) == (State.FAILED, 5.0, why)
    removed = TaskFailure("model_removed", "It is gone.")
    expired = evolve(make_task(), Expired(6.0, removed))
    assert (expired.state, expired.finished_at, expired.failure) == (State.FAILED, 6.0, removed)
    rendering = claimed(make_task())
    assert evolve(rendering, Expired(6.0, removed)) is rendering, "what is being rendered is finished"
    cancelled = evolve(make_task(), Cancelled(7.0))
    assert (cancelled.state, cancelled.finished_at) == (State.CANCELLED, 7.0)
    died = evolve(
        evolve(claimed(make_task(max_attempts=1)), Progressed(2.0, 1, Stage.DENOISING, 3, 9)),
        Interrupted(8.0, 1, "SIGSEGV"),
    )
    assert (died.finished_at, died.failures) == (8.0, 1)
    assert died.failure and "at step 3 of 9: SIGSEGV" in died.failure.message
