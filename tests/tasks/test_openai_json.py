"""The video object: progress that never falls within an attempt."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import make_task

from turnout.tasks.task_rules import (
    Cancelled,
    Claimed,
    Finished,
    GangId,
    Progressed,
    Result,
    Stage,
    Task,
    evolve,
)
from turnout.tasks.video_json import progress, video_of

STAGES = list(Stage)


def attempts(task: Task) -> Task:
    return evolve(task, Claimed(1.0, task.attempt + 1, GangId("g")))


@given(
    of=st.integers(1, 100),
    skipped=st.sets(st.sampled_from(STAGES)),
    start=st.integers(0, 99),
    stop_at=st.integers(0, 110),
    stale=st.integers(0, 40),
)
def test_progress_never_falls_within_an_attempt(
    of: int, skipped: set[Stage], start: int, stop_at: int, stale: int
) -> None:
    # A second attempt, which still carries the step of the first, may resume anywhere.
    task = replace(attempts(make_task()), step=min(stale, of), of=of)
    steps = {
        Stage.LOADING: [0],
        Stage.ENCODING: [0],
        Stage.DENOISING: range(min(start, of), of + 1),
        Stage.DECODING: [of],
        Stage.UPLOADING: [of],
    }
    reports = [(stage, step) for stage in STAGES if stage not in skipped for step in steps[stage]]
    seen = [progress(task)]
    for stage, step in reports[:stop_at]:
        task = evolve(task, Progressed(2.0, 1, stage, step, of))
        seen.append(progress(task))
    assert seen == sorted(seen)
    assert progress(evolve(task, Finished(9.0, 1, Result("v", "t", "s", 1)))) == 100
    if task.stage in (Stage.DENOISING, Stage.DECODING, Stage.UPLOADING):
        assert seen[-1] <= progress(evolve(task, Cancelled(9.0))) < 100


def test_a_fresh_attempt_does_not_show_the_steps_of_the_last() -> None:
    task = replace(attempts(make_task()), step=3, of=4)
    assert video_of(task, 60).step == 0
    assert video_of(evolve(task, Progressed(2.0, 1, Stage.DENOISING, 2, 4)), 60).step == 2


def test_an_ended_video_expires_after_the_retention() -> None:
    task = evolve(make_task(), Cancelled(1000.0))
    shown = video_of(task, 60)
    assert (shown.expires_at, shown.completed_at, shown.status) == (1060, None, "cancelled")
