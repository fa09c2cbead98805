from turnout.tasks.stage_rules import StageClock, StageTime
from turnout.tasks.task_rules import (
    Cancelled,
    Claimed,
    Event,
    Finished,
    GangId,
    Interrupted,
    Previewed,
    Progressed,
    Result,
    Stage,
    Submitted,
)

RESULT = Result("v", "t", "s", 1)


def seen(*events: Event) -> list[StageTime]:
    clock = StageClock()
    return [time for event in events if (time := clock.see(event)) is not None]


def progress(at: float, stage: Stage, step: int = 0) -> Progressed:
    return Progressed(at, 1, stage, step, 4)


def test_each_stage_lasts_until_the_next() -> None:
    assert seen(
        Submitted(1.0),
        Claimed(3.0, 1, GangId("g")),
        progress(3.1, Stage.LOADING),
        progress(7.0, Stage.ENCODING),
        progress(8.0, Stage.DENOISING),
        progress(9.0, Stage.DENOISING, 1),
        Previewed(9.5, 1, 1, "key"),
        progress(12.0, Stage.DENOISING, 4),
        progress(12.5, Stage.DECODING, 4),
        progress(13.0, Stage.UPLOADING, 4),
        Finished(15.0, 1, RESULT),
    ) == [
        StageTime("queued", 1.0, 3.0),
        StageTime("loading", 3.0, 7.0),
        StageTime("encoding", 7.0, 8.0),
        StageTime("step", 8.0, 9.0, 1),
        StageTime("step", 9.0, 12.0, 4, steps=3),
        StageTime("decoding", 12.5, 13.0),
        StageTime("uploading", 13.0, 15.0),
    ]


def test_steps_that_were_reported_together_took_the_same_time_each() -> None:
    assert StageTime("step", 9.0, 12.0, 4, steps=3).seconds == 1.0
    assert StageTime("queued", 9.0, 8.0).seconds == 0.0  # clocks of two machines


def test_what_an_attempts_end_cuts_is_not_whole_and_the_task_waits_again() -> None:
    assert seen(
        Claimed(1.0, 1, GangId("g")),
        progress(2.0, Stage.DENOISING, 2),
        Interrupted(5.0, 1, "killed"),
        Claimed(6.0, 2, GangId("g")),
        Cancelled(7.0),
        progress(8.0, Stage.DENOISING, 3),
    ) == [
        StageTime("loading", 1.0, 2.0),
        StageTime("step", 2.0, 5.0, 3, whole=False),
        StageTime("queued", 5.0, 6.0),
        StageTime("loading", 6.0, 7.0, whole=False),
    ]


def test_a_step_that_is_told_again_is_no_step() -> None:
    assert seen(progress(1.0, Stage.DENOISING, 2), progress(2.0, Stage.DENOISING, 2)) == []
