"""When a gang shows a preview, keeps a checkpoint, and how long it says that it will take."""

import pytest

from turnout.gang.cadence_rules import Cadence, StepPace

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


def test_later_steps_outweigh_the_first_one() -> None:
    assert StepPace().eta_s(1, 10) is None
    slow = StepPace(decode_s=2.0).after(9.0)
    assert slow.eta_s(1, 10) == 83.0
    assert slow.after(1.0).after(1.0).eta_s(4, 10) == 20.0
