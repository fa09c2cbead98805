"""What the end of an attempt or of a task adds to what its tenant used."""

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import make_task

from turnout.tasks.task_rules import State
from turnout.tenants.usage_rules import (
    AttemptWork,
    Used,
    added,
    attempt_work,
    day_of,
    this_month_and_last,
    used_by,
)

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


def test_what_was_used_is_added_up_figure_by_figure() -> None:
    one, other = Used(*range(13)), Used(*range(100, 1400, 100))
    assert added(one, other) == Used(*(n + 100 * (n + 1) for n in range(13)))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/Los_Angeles"])
def test_a_day_is_utc_s_wherever_the_machine_is(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", zone)
        time.tzset()
        _is_utc()
    time.tzset()


def _is_utc() -> None:
    assert [day_of(at) for at in (0.0, 86_399.9, 86_400.0)] == ["1970-01-01", "1970-01-01", "1970-01-02"]


@pytest.mark.parametrize(
    ("day", "months"),
    [
        ("2026-11-30", ("2026-11", "2026-10")),
        ("2026-01-01", ("2026-01", "2025-12")),
        ("2026-02-28", ("2026-02", "2026-01")),
        ("2026-12-31", ("2026-12", "2026-11")),
        ("1000-01-01", ("1000-01", "0999-12")),
    ],
)
def test_the_month_before_january_is_last_year_s_december(day: str, months: tuple[str, str]) -> None:
    assert this_month_and_last(day) == months
