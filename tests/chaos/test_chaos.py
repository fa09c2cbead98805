"""A short run of what `./dev chaos` runs for an hour: faults of most kinds while videos are rendered, and nothing is lost.

There Wan renders. Here it is an engine that waits between its steps: what is tried is what becomes of tasks and their checkpoints, and
that Wan's own resume to the same bytes is seen in `tests/engines`."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.cluster import TWO_GANGS
from tests.chaos.faults import FAULTS
from tests.chaos.run import Plan, run_chaos
from tests.held_model import Gate, held_model

TASKS = 26  # more than twice as many as faults: on a quick machine two end after some of them
SHORT = (
    "kill rank",
    "kill gateway",
    "redis away past the lease",
    "kill gang",
    "disk full",
    "kill redis",
    "zombie gang",
    "kill worker",
    "s3 away",
    "redis out of memory",
    "kill manager",
)


@pytest.mark.timeout(900)
async def test_nothing_is_lost_whatever_fails(tmp_path: Path, s3: str, figures: Any) -> None:
    by_name = {fault.name: fault for fault in FAULTS}
    Gate(tmp_path).open(pace_s=0.2)
    plan = Plan(
        TASKS,
        tuple(by_name[name] for name in SHORT),
        seed=20260,
        clocks=False,
        limit_s=600,
        between=(1, 1),
        video=held_model(tmp_path, cfg=2, **TWO_GANGS),
    )
    report = await run_chaos(plan, tmp_path, s3, lambda line: print(line, file=sys.stderr))
    figures(report.table())
    assert not report.wrong, report.table()
    assert report.completed == TASKS
    assert set(SHORT) == set(report.faults), "each fault came"
