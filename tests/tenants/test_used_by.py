"""What the end of an attempt or of a task adds to what its tenant used."""

from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import make_task

from turnout.tasks.task_rules import State
from turnout.tenants.usage_rules import Used, used_by

WAITING = make_task()  # 17 frames, 8 a second
RUNNING = replace(WAITING, state=State.IN_PROGRESS, started_at=100.0, claimed_at=110.0)


def ended(state: State, **fields: Any) -> Any:
    return replace(RUNNING, state=state, finished_at=130.0, **fields)


@pytest.mark.parametrize(
    ("before", "task", "used"),
    [
        (None, WAITING, Used()),
        (WAITING, RUNNING, Used()),
        (RUNNING, RUNNING, Used()),
        (RUNNING, replace(RUNNING, state=State.QUEUED), Used(work_ms=15_000)),
        (replace(RUNNING, claimed_at=None), replace(RUNNING, state=State.QUEUED), Used(work_ms=25_000)),
        (replace(RUNNING, claimed_at=999.0), replace(RUNNING, state=State.QUEUED), Used()),
        (RUNNING, ended(State.FAILED), Used(render_ms=30_000, work_ms=15_000)),
        (RUNNING, ended(State.CANCELLED, started_at=None), Used(work_ms=15_000)),
        (RUNNING, ended(State.CANCELLED, started_at=200.0), Used(work_ms=15_000)),
        (WAITING, ended(State.CANCELLED, started_at=None), Used()),
        (None, ended(State.COMPLETED), Used(videos=1, video_ms=2125, render_ms=30_000)),
        (
            RUNNING,
            ended(State.COMPLETED),
            Used(videos=1, video_ms=2125, render_ms=30_000, work_ms=15_000),
        ),
    ],
)
def test_an_attempt_adds_its_work_and_an_end_what_was_made(before: Any, task: Any, used: Used) -> None:
    assert used_by(before, task, 125.0) == used
