"""What the end of an attempt or of a task adds to what its tenant used."""

from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import make_task

from turnout.tasks.task_rules import State
from turnout.tenants.usage_rules import AttemptWork, Used, attempt_work, used_by

WAITING = make_task()  # 17 frames, 8 a second
RUNNING = replace(WAITING, state=State.IN_PROGRESS, started_at=100.0, claimed_at=110.0)


def ended(state: State, **fields: Any) -> Any:
    return replace(RUNNING, state=state, finished_at=130.0, **fields)


@pytest.mark.parametrize(
    ("before", "task", "used", "work"),
    [
        (None, WAITING, Used(), ""),
        (WAITING, RUNNING, Used(attempts=1), "begins"),
        (RUNNING, RUNNING, Used(), ""),
        (RUNNING, replace(RUNNING, state=State.QUEUED), Used(), "ends"),
        (RUNNING, ended(State.FAILED), Used(), "ends"),
        (WAITING, ended(State.CANCELLED, started_at=None), Used(), ""),
        (None, ended(State.COMPLETED), Used(videos=1, video_ms=2125), ""),
        (RUNNING, ended(State.COMPLETED), Used(videos=1, video_ms=2125), "ends"),
    ],
)
def test_an_attempt_counts_when_it_begins_and_a_video_when_it_ends(
    before: Any, task: Any, used: Used, work: AttemptWork
) -> None:
    assert used_by(before, task) == used
    assert attempt_work(before, task, seen=True) == work
    assert attempt_work(before, task, seen=False) == ("lost" if work == "ends" else work)
