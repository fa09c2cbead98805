"""When a gang shows a preview, keeps a checkpoint, and how long it says that it will take."""

import pytest

from turnout.gang.cadence_rules import AttemptPace, Cadence
from turnout.tasks.pace_rules import ExpectedTimes
from turnout.tasks.task_rules import Stage
from turnout.tasks.video_rules import VideoSpec

CADENCE = Cadence(checkpoint_steps=5, checkpoint_s=30.0, preview_steps=4)


def test_previews_come_at_every_so_many_steps_but_not_at_the_ends() -> None:
    assert [step for step in range(13) if CADENCE.preview_due(step, 12)] == [4, 8]


@pytest.mark.parametrize(
    ("step", "last", "since_s", "due"),
    [
        (4, 0, 29.9, False),
        (5, 0, 0.0, True),
        (1, 0, 30.0, True),
        (5, 5, 99.0, False),
        (9, 5, 0.0, False),
        (10, 5, 0.0, True),
        (12, 5, 99.0, False),
    ],
)
def test_a_checkpoint_is_kept_after_steps_or_seconds_and_not_of_what_is_done(
    step: int, last: int, since_s: float, due: bool
) -> None:
    assert CADENCE.checkpoint_due(step, 12, last, since_s) is due


SPEC = VideoSpec("a ball", "", 128, 128, 17, 8, 10, guidance=(4.0, 4.0), shift=5.0, seed=1, guided_share=0.5)
TIMES = ExpectedTimes(encode_s=1.0, guided_step_s=4.0, step_s=2.0, finish_s=5.0)


def test_an_attempt_is_expected_to_take_what_the_service_knows_of_its_kind() -> None:
    pace = AttemptPace(SPEC, TIMES, loading_s=20.0)
    assert pace.eta_s(Stage.LOADING, 0) == 20 + 1 + 5 * 4 + 5 * 2 + 5
    assert pace.eta_s(Stage.LOADING, 0, in_stage_s=15.0) == 5 + 36
    assert pace.eta_s(Stage.LOADING, 0, in_stage_s=99.0) == 36, "loading takes longer, the rest does not"
    assert pace.eta_s(Stage.ENCODING, 0) == 36
    assert pace.eta_s(Stage.DENOISING, 0) == 35
    assert pace.eta_s(Stage.DENOISING, 5) == 15, "the steps without guidance are the last ones"
    assert pace.eta_s(Stage.DECODING, 10) == 5
    assert pace.eta_s(Stage.UPLOADING, 10, in_stage_s=4.0) == 1
    assert pace.eta_s(Stage.UPLOADING, 10, in_stage_s=9.0) == 0


def test_of_steps_that_take_no_time_none_is_left() -> None:
    assert AttemptPace(SPEC, ExpectedTimes(0.0, 0.0, 0.0, 5.0)).eta_s(Stage.DENOISING, 0) == 5


def test_an_attempt_that_is_slower_than_expected_says_so_by_and_by() -> None:
    pace = AttemptPace(SPEC, TIMES).after(1, 40.0)
    assert pace.eta_s(Stage.DENOISING, 1) == 31, "the first step chooses kernels"
    for step in range(2, 6):
        pace = pace.after(step, 8.0)
    # Three steps of 3 s are expected, four of 4 s were seen to take 8 s.
    assert pace.eta_s(Stage.DENOISING, 5) == round(10 * (9 + 32) / (9 + 16) + 5, 3)


def test_the_first_video_of_a_model_is_judged_by_its_own_steps_and_counts_decoding() -> None:
    pace = AttemptPace(SPEC)
    assert pace.eta_s(Stage.LOADING, 0) is None and pace.eta_s(Stage.DENOISING, 0) is None
    slow = pace.after(1, 9.0)
    assert slow.eta_s(Stage.DENOISING, 1) == (4 * 2 + 5) * 4.5 + 9.0
    assert slow.after(2, 2.0).after(3, 2.0).eta_s(Stage.DENOISING, 3) == (2 * 2 + 5) * 1.0 + 2.0
